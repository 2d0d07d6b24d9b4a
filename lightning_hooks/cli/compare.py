"""``lightning-hooks compare A B``: the values of two runs side by side, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lightning_hooks.cli.run_log import RunLog, Series

__all__ = ["Comparison", "Quantity", "compare", "table_of"]


class Quantity(NamedTuple):
    """The last, lowest and highest value of a quantity in each run; ``None`` where it has none."""

    key: str
    mode: str
    first: tuple[float, float, float] | None
    second: tuple[float, float, float] | None


class Comparison(NamedTuple):
    """Two runs side by side."""

    quantities: list[Quantity]
    parting: str | None
    """The first value that differs; ``None`` if all are equal."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"parting": self.parting, "quantities": [one._asdict() for one in self.quantities]}


def compare(one: RunLog, other: RunLog) -> Comparison:
    """Compare the logs of two runs, without times and memory.

    Args:
        one: The log of the first run.
        other: The log of the second.
    """
    mine, theirs = one.series(in_epochs=False), other.series(in_epochs=False)
    quantities = [
        Quantity(*key, _summary(mine.get(key)), _summary(theirs.get(key)))
        for key in dict.fromkeys([*mine, *theirs])
    ]
    return Comparison(quantities, _parting(mine, theirs))


def _summary(line: Series | None) -> tuple[float, float, float] | None:
    if line is None:
        return None
    numbers = [value for value in line.values if value == value] or line.values
    return line.values[-1], min(numbers), max(numbers)


def _parting(
    mine: dict[tuple[str, str], Series], theirs: dict[tuple[str, str], Series]
) -> str | None:
    """Return the first value that differs, in the order in which the runs logged it."""
    partings: list[tuple[float, str]] = []
    for key, mode in dict.fromkeys([*mine, *theirs]):
        lines = [runs.get((key, mode), Series([], [])) for runs in (mine, theirs)]
        points = [list(zip(line.at, line.values, strict=True)) for line in lines]
        for index in range(max(map(len, points))):
            pair = [line[index] if index < len(line) else None for line in points]
            if repr(pair[0]) != repr(pair[1]):
                at = min(point[0] for point in pair if point is not None)
                values = " and ".join(f"{p[1]:.6g}" if p else "none" for p in pair)
                partings.append((at, f"{key} ({mode}) at iteration {at:g}: {values}"))
                break
    return min(partings, key=lambda parting: parting[0])[1] if partings else None


def table_of(result: Comparison, names: Sequence[str]) -> Any:
    """Return the two runs as a table for rich."""
    from rich.table import Column, Table
    from rich.text import Text  # in which brackets are no markup

    table = Table(Column("value", overflow="fold"), "mode")
    for name in names:
        for column in ("last", "lowest", "highest"):
            heading = Text(f"{name}\n{column}")
            table.add_column(heading, justify="right", overflow="fold")  # a cut number is another
    for one in result.quantities:
        cells = [
            f"{value:.5g}" if value is not None else "-"
            for run in (one.first, one.second)
            for value in run or (None, None, None)
        ]
        table.add_row(Text(one.key), one.mode, *cells)
    return table
