"""Write the results of all benches: a table with the goals, on the console too, and a picture."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

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
    lines = ["| " + " | ".join(row) + " |" for row in [HEADER, ["---"] * len(HEADER), *rows]]
    lines += ["", "; ".join(f"{name} {version}" for name, version in machine().items()) + "."]
    (directory / "goals.md").write_text("\n".join(lines) + "\n")
    draw(aims, directory / "goals.png")


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
