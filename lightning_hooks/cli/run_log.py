"""``RunLog``: the rows that a run has written to its ``.log.json``."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from lightning_hooks.cli.printable import printable

__all__ = ["RunLog", "Series", "read_run"]

Row = dict[str, Any]

MEASURED = {"time", "data_time", "memory", "eta"}
"""Values that differ from one run to the next whatever it trains."""
POSITION = {"mode", "epoch", "iter"}


class Series(NamedTuple):
    """The values of one quantity over a run, as ``loss`` in training."""

    at: list[float]
    """The epochs or iterations that had passed at each."""
    values: list[float]


@dataclasses.dataclass(frozen=True)
class RunLog:
    """The rows of a run, in their order.

    Args:
        path: The file.
        rows: A dict for each line of the log.
        damaged: The number of lines that are no rows.
    """

    path: Path
    rows: tuple[Row, ...]
    damaged: int = 0

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return printable(self.path.resolve().parent.name)

    @property
    def batches(self) -> int | None:
        """Iterations of an epoch, as far as logged, if rows count within epochs; else ``None``."""
        train = [row for row in self.rows if row["mode"] == "train"]
        again = any(
            two["iter"] <= one["iter"] and two["epoch"] > one["epoch"]
            for one, two in itertools.pairwise(train)
        )
        if again or {row["epoch"] for row in train} == {1}:
            return max(int(row["iter"]) for row in train)
        return None

    def series(self, *, in_epochs: bool) -> dict[tuple[str, str], Series]:
        """Return the values by quantity and mode, without times and memory.

        The values of a dict, as the rates of several optimizers, are quantities of their own:
        ``lr.generator``.

        Args:
            in_epochs: Whether positions are epochs, for a run that counts in them; else they are
                iterations.
        """
        found: dict[tuple[str, str], Series] = {}
        batches = self.batches
        for row in self.rows:
            at = float(row["iter"])
            if batches is not None:
                at = (row["epoch"] - 1) * batches
                at += row["iter"] if row["mode"] == "train" else batches
                at /= batches if in_epochs else 1
            for key, value in _numbers(row):
                if row["mode"] == "val" and key.partition(".")[0] in ("lr", "momentum"):
                    continue  # those of the training
                one = found.setdefault((key, row["mode"]), Series([], []))
                one.at.append(at)
                one.values.append(value)
        return found


def read_run(path: str | Path) -> RunLog:
    """Read the newest ``.log.json`` of a folder, or one file.

    Args:
        path: A run's work directory, or a ``.log.json`` in it.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if no line of it is a row of a log.
    """
    path = Path(path)
    logs = sorted(path.glob("*.log.json")) if path.is_dir() else [path]
    if not logs or not logs[-1].is_file():
        raise FileNotFoundError(f"{path} has no .log.json: TextLoggerHook writes one")
    rows, damaged = [], 0
    for number, line in enumerate(logs[-1].read_bytes().splitlines()):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif number or b'"mode"' in line:  # the first line may be the run's meta
            damaged += 1
    if not rows:
        raise ValueError(f"{logs[-1]} has no row of a log")
    return RunLog(logs[-1], tuple(rows), damaged)


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("mode") not in ("train", "val"):
        return None
    counts = [row.get("epoch"), row.get("iter")]
    is_row = all(type(count) is int and 0 <= count < 2**53 for count in counts)
    return row if is_row else None


def _numbers(row: Row) -> list[tuple[str, float]]:
    """Return the finite and infinite numbers of a row, with the names of their quantities."""
    found: list[tuple[str, float]] = []
    for key, value in row.items():
        if key in MEASURED | POSITION:
            continue
        parts = value if isinstance(value, dict) else {"": value}
        for part, number in parts.items():
            name = printable(f"{key}.{part}" if part else key)
            number = number[0] if isinstance(number, list) and len(number) == 1 else number
            if type(number) in (int, float):
                try:
                    found.append((name, float(number)))
                except OverflowError:
                    found.append((name, math.inf))
    return found
