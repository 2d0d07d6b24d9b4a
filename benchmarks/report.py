"""Write the results of all benches: a table with the goals, on the console too, and a picture.

The page of all tables has a line for each case; benches of the same cases and unit stand side by
side.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Ratio, ratio_rows

PEERS = (
    "torch",
    "lightning",
    "mmcv",
    "mmengine",
    "mmcls",
    "pytorch-ignite",
    "timm",
    "ema-pytorch",
    "fvcore",
)
HEADER = ("what", "of", "median", "quartiles", "goal", "holds")


def machine() -> dict[str, str]:
    """Return the machine and the versions of the measurement."""
    found = {"python": platform.python_version(), "processors": str(os.cpu_count())}
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        found["processor"] = models[0].partition(": ")[2] if models else platform.machine()
    there = importlib.metadata.packages_distributions().values()
    names = {name for names in there for name in names}
    found |= {name: importlib.metadata.version(name) for name in PEERS if name in names}
    return found


def write(ratios: Sequence[Ratio], directory: Path) -> None:
    """Write, print and draw the table of all ratios with a goal."""
    aims = [ratio for ratio in ratios if ratio.goal is not None]
    rows = [
        [*row, "yes" if ratio.median <= (ratio.goal or 0) else "no"]
        for row, ratio in zip(ratio_rows(aims), aims, strict=True)
    ]
    table = Table(*HEADER, title="Goals")
    for row in rows:
        table.add_row(*row, style=None if row[-1] == "yes" else "bold")
    Console().print(table)
    lines = [*markdown(HEADER, rows)]
    lines += ["", "; ".join(f"{name} {version}" for name, version in machine().items()) + "."]
    (directory / "goals.md").write_text("\n".join(lines) + "\n")
    draw(aims, directory / "goals.png")


def tables(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the page with the figures of all benches.

    Args:
        found: The benches of each name, as ``results.json`` has them.
    """
    lines: list[str] = []
    for name, benches in found.items():
        lines += [f"### {name}", ""]
        for (unit, _), group in itertools.groupby(benches, lambda one: (one["unit"], cases(one))):
            lines += [*side_by_side(unit, list(group)), ""]
        ratios = [ratio for bench in benches for ratio in bench["ratios"]]
        rows = ratio_rows([Ratio(**ratio) for ratio in ratios])
        lines += (
            [*markdown(("ratio", "of", "median", "quartiles", "goal"), rows), ""] if rows else []
        )
    return "\n".join(lines)


def cases(bench: Mapping[str, Any]) -> list[str]:
    """Return the names of a bench's cases."""
    return list(bench["figures"])


def side_by_side(unit: str, benches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table: a row for each case, a column for each bench."""
    rows = [
        [case, *(f"{statistics.median(bench['figures'][case]):.4g}" for bench in benches)]
        for case in cases(benches[0])
    ]
    return markdown((unit, *(bench["title"] for bench in benches)), rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def draw(ratios: Sequence[Ratio], path: Path) -> None:
    """Draw each ratio as a part of its goal; the goal is met left of the line."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.3 * len(ratios) + 1), layout="constrained")
    least = 0.02  # what is next to nothing, or less by the noise, stands at the edge
    for place, ratio in enumerate(reversed(ratios)):
        goal = ratio.goal or 1
        low, middle, high = (
            max(value / goal, least)
            for value in (ratio.quartiles[0], ratio.median, ratio.quartiles[1])
        )
        color = "tab:blue" if middle <= 1 else "tab:red"
        axes.plot([low, high], [place, place], color=color, linewidth=2, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=color, markersize=5)
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(left=least * 0.9)
    names = [f"{ratio.what} / {ratio.peer}" for ratio in reversed(ratios)]
    axes.set_yticks(range(len(ratios)), names, fontsize=8)
    axes.set_ylim(-0.7, len(ratios) - 0.3)
    axes.set_xlabel(
        "ratio as a part of its goal\n(1: the goal; median and quartiles of the rounds)"
    )
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
