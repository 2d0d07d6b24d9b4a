"""Write the results of all benches: the table of goals, its picture, and each bench's figures."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import os
import platform
import statistics
import time
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


@functools.cache
def machine() -> dict[str, str]:
    """Return the machine, its speed and the versions of the measurement."""
    found = {"python": platform.python_version(), "processors": str(os.cpu_count())}
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        found["processor"] = models[0].partition(": ")[2] if models else platform.machine()
    begin, total = time.process_time(), 0
    for number in range(10**7):
        total += number
    found["10^7 additions in Python"] = f"{time.process_time() - begin:.2f} s"
    there = importlib.metadata.packages_distributions().values()
    names = {name for names in there for name in names}
    found |= {name: importlib.metadata.version(name) for name in PEERS if name in names}
    return found


def write(ratios: Sequence[Ratio], directory: Path) -> None:
    """Write, print and draw the table of all ratios with a goal."""
    table = Table(*HEADER, title="Goals")
    for row in goal_rows(ratios):
        table.add_row(*row, style=None if row[-1] == "yes" else "bold")
    Console().print(table)
    (directory / "goals.md").write_text(goals(ratios, machine()), encoding="utf-8")
    draw(aims(ratios), directory / "goals.png")


def aims(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Return the ratios that have a goal."""
    return [ratio for ratio in ratios if ratio.goal is not None]


def goal_rows(ratios: Sequence[Ratio]) -> list[list[str]]:
    """Return the cells of the table of goals."""
    return [
        [*row, "yes" if ratio.median <= (ratio.goal or 0) else "no"]
        for row, ratio in zip(ratio_rows(aims(ratios)), aims(ratios), strict=True)
    ]


def goals(ratios: Sequence[Ratio], where: Mapping[str, str]) -> str:
    """Return the table of goals in Markdown, with the machine and the versions below it."""
    versions = "; ".join(f"{name} {version}" for name, version in where.items())
    return "\n".join([*markdown([HEADER, *goal_rows(ratios)]), "", f"{versions}.\n"])


def tables(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the figures of all benches: the description of each bench, and a table per unit.

    Args:
        found: The benches by name, as in ``results.json``.
    """
    lines: list[str] = []
    for name, benches in found.items():
        told = inspect.getdoc(importlib.import_module(f"benchmarks.{name}")) or ""
        lines += [f"### {name}", "", told.splitlines()[0].replace("``", "`"), ""]
        for group in comparable(benches):
            lines += [*side_by_side(group), ""]
    return "\n".join(lines)


def comparable(benches: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the benches in groups with the same unit and common cases."""
    groups: list[list[Mapping[str, Any]]] = []
    for bench in benches:
        for group in groups:
            same_unit = bench["unit"] == group[0]["unit"]
            if same_unit and bench["figures"].keys() & group[0]["figures"].keys():
                group.append(bench)
                break
        else:
            groups.append([bench])
    return groups


def side_by_side(benches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of cases and benches; the fewer of the two are its columns."""
    cases = dict.fromkeys(case for bench in benches for case in bench["figures"])
    rows = [[str(benches[0]["unit"]), *(bench["title"] for bench in benches)]]
    rows += [[case, *(median(bench["figures"].get(case)) for bench in benches)] for case in cases]
    return markdown(rows if len(benches) <= len(cases) else [*zip(*rows, strict=True)])


def median(figures: Sequence[float] | None) -> str:
    """Return the median of a case's figures, or an empty text for a missing case."""
    return f"{statistics.median(figures):.4g}" if figures else ""


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, whose first row is its header."""
    for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]):
        yield f"| {' | '.join(row)} |"


def draw(ratios: Sequence[Ratio], path: Path) -> None:
    """Draw each ratio divided by its goal; a bar that ends left of the line meets the goal."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from PIL import Image

    # as narrow as a phone needs it: names stand above the dots, not beside them
    figure, axes = plt.subplots(figsize=(5, 0.3 * len(ratios) + 1), layout="constrained")
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
        name = f"{ratio.what} / {ratio.peer}"
        axes.text(least, place + 0.25, name, fontsize=7.5, color=color)
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(left=least * 0.9)
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(ratios))
    axes.set_xlabel(
        "ratio as a part of its goal\n(1: the goal; median and quartiles of the rounds)"
    )
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
