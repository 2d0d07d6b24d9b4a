"""``lightning-hooks plot RUN``: what finished runs have logged, as curves in one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from lightning_hooks.cli.run_log import RunLog, Series
from lightning_hooks.utils.suggestions import suggest

__all__ = ["draw_runs", "runs_in_terminal"]

COLUMNS = 2
LARGEST = 1e300
"""The largest number that is drawn: the axes, which are wider, overflow beyond."""


def draw_runs(runs: Sequence[RunLog], path: str | Path, keys: Sequence[str] = ()) -> Path:
    """Draw a panel for each quantity, with a line for each run and mode.

    Values of validations are marked by points. The axis is the epoch if all runs count in epochs,
    else the iteration.

    Args:
        runs: The logs.
        path: The picture; its ending sets the format (``.png``, ``.svg``).
        keys: The quantities to draw, as ``loss``; all by default.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        ValueError: if there is no such quantity, or none at all.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'plot needs matplotlib: pip install "lightning_hooks[plot]"', name="matplotlib"
        ) from error
    panels = _panels(runs, keys)
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5 * columns, 0.6 + 2.8 * rows), layout="constrained")
    axes = [*figure.subplots(rows, columns, squeeze=False).flat]
    for axis, (key, lines) in zip(axes, panels.items(), strict=False):
        for (number, mode), line in lines.items():
            label = " ".join(
                [runs[number].name] * (len(runs) > 1) + [mode] * (len({m for _, m in lines}) > 1)
            )
            marker = "o--" if mode == "val" else "-"
            axis.plot(line.at, line.values, marker, color=f"C{number}", ms=4, label=label or None)
        axis.set_title(key, fontsize=10, parse_math=False)
        axis.set_xlabel(_unit(runs))
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[1]:
            for text in axis.legend(fontsize=8).get_texts():
                text.set_parse_math(False)
    for axis in axes[len(panels) :]:
        axis.remove()
    figure.savefig(path, dpi=120)
    return Path(path)


def runs_in_terminal(
    runs: Sequence[RunLog], width: int, keys: Sequence[str] = (), height: int = 12
) -> str:
    """Return the curves drawn with characters, one panel for each quantity."""
    import plotext

    panels = []
    for key, lines in _panels(runs, keys).items():
        plotext.clear_figure()
        plotext.theme("clear")
        plotext.plot_size(width, height)
        for (number, mode), line in lines.items():
            label = f"{runs[number].name} {mode}" if len(lines) > 1 else None
            marker = "o" if mode == "val" else "braille"
            points = [point for point in zip(*line, strict=True) if math.isfinite(point[1])]
            if points:  # plotext fails on a legend whose line begins with NaN
                plotext.plot(*zip(*points, strict=True), marker=marker, label=label)
        plotext.title(key)
        plotext.xlabel(_unit(runs))
        panels.append(plotext.uncolorize(plotext.build()))
    plotext.clear_figure()
    return "\n".join(panels)


def _unit(runs: Sequence[RunLog]) -> str:
    return "epoch" if all(run.batches for run in runs) else "iteration"


def _panels(
    runs: Sequence[RunLog], keys: Sequence[str]
) -> dict[str, dict[tuple[int, str], Series]]:
    """Return the lines of each quantity, by run and mode; there is a gap at what is not finite."""
    panels: dict[str, dict[tuple[int, str], Series]] = {}
    for number, run in enumerate(runs):
        for (key, mode), line in run.series(in_epochs=_unit(runs) == "epoch").items():
            drawn = [value if abs(value) < LARGEST else math.nan for value in line.values]
            panels.setdefault(key, {})[number, mode] = Series(line.at, drawn)
    absent = [key for key in keys if key not in panels]
    if not panels:
        raise ValueError(f"the logs have no {', '.join(absent) or 'curve'}, but no numbers at all")
    if absent:
        hint = suggest(absent[0], panels)
        raise ValueError(f"the logs have no {', '.join(absent)}; {hint}")
    return {key: panels[key] for key in keys or panels}
