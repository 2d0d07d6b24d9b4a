"""``lightning-hooks plot RUN ...``: draw the values in the logs of finished runs."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning_hooks.cli.terminal import panel
from lightning_hooks.utils.pictures import new_figure
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "RunLog",
    "Series",
    "changed_most",
    "draw_runs",
    "figure_of",
    "quantities",
    "read_run",
    "runs_in_terminal",
]

Row = dict[str, Any]

MEASURED = {"time", "data_time", "memory", "eta"}
"""Values of the machine, not of the training; not drawn."""
POSITION = {"mode", "epoch", "iter"}
RATES = {"lr", "momentum"}
MARKERS = {"val": "o", "train_epoch": "s", "test": "^"}
"""The modes of rows of many iterations at once, with their points; all others are of ``train``."""
COLUMNS = 2
"""Panels side by side in the picture."""
MOST_PANELS = 40
"""The maximum number of panels in a picture."""
FEW_PANELS = 12
"""Of more panels, the margins are not computed from the texts, which takes most of the time."""
LARGEST, SMALLEST = 1e300, 1e-300
"""The largest drawn number and the smallest range; beyond them the scale of an axis overflows."""


class Series(NamedTuple):
    """The values of a quantity over a run, for example of the training loss."""

    at: list[float]
    """The number of epochs or iterations before each value."""
    values: list[float]


Panels = dict[str, dict[tuple[int, str], Series]]
"""The lines of each quantity by run and mode."""


@dataclasses.dataclass(frozen=True)
class RunLog:
    """The rows of a run in the order of the log.

    Args:
        path: The file.
        rows: A dict for each line of the log.
        damaged: The number of damaged lines.
    """

    path: Path
    rows: tuple[Row, ...]
    damaged: int = 0

    @property
    def batches(self) -> int | None:
        """Iterations of an epoch, as far as logged; None if rows count over the whole run."""
        train = [row for row in self.rows if row["mode"] == "train"]
        again = any(
            following["iter"] <= row["iter"] and following["epoch"] > row["epoch"]
            for row, following in itertools.pairwise(train)
        )
        if again or {row["epoch"] for row in train} == {1}:
            modes = {"train", "train_epoch", *(["val"] if self._validates_within else [])}
            return max(int(row["iter"]) for row in self.rows if row["mode"] in modes)
        return None

    @functools.cached_property
    def _lengths(self) -> dict[int, int]:
        """Iterations of each epoch whose end is logged: a loader, or its batches, may change."""
        ends = (row for row in self.rows if row["mode"] == "train_epoch")
        return {row["epoch"]: row["iter"] for row in ends if row["iter"] > 0}

    @property
    def _validates_within(self) -> bool:
        """Whether a validation is within an epoch, so that the rows count training iterations.

        An epoch has two validations, or training goes on in the epoch after one.
        """
        of_fit = [row for row in self.rows if _is_of_fit(row)]
        goes_on = any(
            (row["mode"], after["mode"]) == ("val", "train") and row["epoch"] == after["epoch"]
            for row, after in itertools.pairwise(of_fit)
        )
        places: dict[tuple[int, str], int] = {}
        return goes_on or any(
            places.setdefault((row["epoch"], key), row["iter"]) != row["iter"]
            for row in self.rows
            if row["mode"] == "val" and _is_of_fit(row)
            for key in row.keys() - POSITION - MEASURED - RATES
        )

    def series(self, *, in_epochs: bool) -> dict[tuple[str, str], Series]:
        """Return the values by quantity and mode, without times and memory.

        A dict in a row, as for several optimizers, becomes several quantities: ``lr.generator``.

        Args:
            in_epochs: Whether positions are epochs, if the run counts in epochs; otherwise
                positions are iterations.
        """
        lines: dict[tuple[str, str], Series] = {}
        batches, lengths, within = self.batches, self._lengths, {"train"}
        if self._validates_within:
            within.add("val")
        usual, known = batches or 0, sorted(lengths)
        changes = [0, *itertools.accumulate(lengths[epoch] - usual for epoch in known)]
        for row in self.rows:
            at = float(row["iter"])
            if batches is not None:
                epoch, length = row["epoch"], lengths.get(row["epoch"], batches)
                done = row["iter"] if row["mode"] in within and _is_of_fit(row) else length
                begun = (epoch - 1) * usual + changes[bisect.bisect_left(known, epoch)]
                at = ((epoch - 1) * length + done) / length if in_epochs else begun + done
            for key, value in _numbers(row):
                if row["mode"] == "val" and key.partition(".")[0] in RATES:
                    continue  # repeats the training's value
                line = lines.setdefault((key, row["mode"]), Series([], []))
                line.at.append(at)
                line.values.append(value)
        return lines


def read_run(path: str | Path) -> RunLog:
    """Read a ``.log.json``: of a folder the newest of a fit.

    An evaluation in a process of its own has a log of its own, later than the fit's. It is read if
    the folder has no log of a fit.

    Args:
        path: A run's work directory, or a ``.log.json``.

    Raises:
        FileNotFoundError: if the folder has no log.
        ValueError: if the log has no row.
    """
    path = Path(path)
    logs = sorted(path.glob("*.log.json"), reverse=True) if path.is_dir() else [path]
    if not logs or not logs[0].is_file():
        raise FileNotFoundError(f"{path} has no .log.json: TextLoggerHook writes one")
    newest = _read_log(logs[0])
    read = itertools.chain([newest], map(_read_log, logs[1:]))
    run = next((run for run in read if not run.rows or any(map(_is_of_fit, run.rows))), newest)
    if not run.rows:
        raise ValueError(f"{run.path} has no row of a log")
    return run


def _read_log(path: Path) -> RunLog:
    rows, damaged = [], 0
    for number, line in enumerate(path.read_bytes().splitlines()):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif number or b'"mode"' in line:  # the first line may be the run's meta
            damaged += 1
    return RunLog(path, tuple(rows), damaged)


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("mode") not in ("train", *MARKERS):
        return None
    counts = [row.get("epoch"), row.get("iter")]
    is_row = all(type(count) is int and 0 <= count < 2**53 for count in counts)
    return row if is_row else None


def _is_of_fit(row: Row) -> bool:
    """Whether a row is of a fit, and no validation alone, which has no rate."""
    return row["mode"] == "train" or "lr" in row


def _numbers(row: Row) -> list[tuple[str, float]]:
    """Return the numbers of a row with the names of their quantities."""
    numbers: list[tuple[str, float]] = []
    for key, value in row.items():
        if key in MEASURED | POSITION:
            continue
        parts = value if isinstance(value, dict) else {"": value}
        for part, number in parts.items():
            name = printable(f"{key}.{part}" if part else key)
            number = number[0] if isinstance(number, list) and len(number) == 1 else number
            if type(number) in (int, float):
                numbers.append((name, float(number) if abs(number) < LARGEST else math.nan))
    return numbers


def draw_runs(runs: Sequence[RunLog], path: str | Path, keys: Sequence[str] = ()) -> list[Path]:
    """Draw a panel for each quantity, with a line for each run and mode; return the pictures.

    Points mark the values of validations, tests and whole epochs. The axis is the epoch if all runs
    count in epochs, otherwise the iteration. More than 40 quantities make several pictures,
    ``curves.png``, ``curves_2.png``, of small panels: a name, the range of the values, and no axes.

    Args:
        runs: The logs.
        path: The picture; the ending sets the format (``.png``, ``.svg``).
        keys: The quantities to draw, for example ``loss``; all by default.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        ValueError: if the logs lack a quantity in ``keys``, or have no number.
    """
    panels, pictures = [*_panels(runs, keys).items()], list[Path]()
    for start in range(0, len(panels), MOST_PANELS):
        number = f"_{len(pictures) + 1}" if pictures else ""
        pictures.append(Path(path).with_stem(f"{Path(path).stem}{number}"))
        draw = _small_panels if len(panels) > MOST_PANELS else _figure
        figure = draw(runs, dict(panels[start : start + MOST_PANELS]), 7)
        if len(figure.axes) > FEW_PANELS:
            figure.set_layout_engine(None)  # it measures each text several times
            margin = 0.5 / figure.get_figheight()
            figure.subplots_adjust(0.12, margin, 0.98, 1 - margin, 0.25, 0.5)
        figure.savefig(pictures[-1], dpi=120)
    return pictures


def quantities(runs: Sequence[RunLog]) -> list[str]:
    """Return the names of the quantities in the logs."""
    return [*_panels(runs, ())]


def changed_most(runs: Sequence[RunLog], most: int | None = None) -> list[str]:
    """Return the quantities whose values range most, by their size, in the order of the logs."""
    panels = _panels(runs, ())
    ranges = {key: max(map(_range, lines.values())) for key, lines in panels.items()}
    chosen = {*sorted(ranges, key=ranges.__getitem__, reverse=True)[: most or MOST_PANELS]}
    return [key for key in panels if key in chosen]


def _range(line: Series) -> float:
    """Return the range of the values, as a share of the largest: 0 for a constant, at most 2."""
    values = [value for value in line.values if math.isfinite(value)]
    largest = max(map(abs, values), default=0.0)
    return (max(values) - min(values)) / largest if largest else 0.0


def figure_of(runs: Sequence[RunLog], keys: Sequence[str], width: float) -> Any:
    """Return the figure of :func:`draw_runs`, with a width in inches."""
    return _figure(runs, _panels(runs, keys), width)


def _figure(runs: Sequence[RunLog], panels: Panels, width: float) -> Any:
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(width, 0.6 + 2.4 * rows)
    axes = [*figure.subplots(rows, columns, squeeze=False).flat]
    for axis, (key, lines) in zip(axes, panels.items(), strict=False):
        for (number, mode), line in lines.items():
            axis.plot(*line, **_style(runs, number, mode))
        axis.set_title(key, fontsize=10, parse_math=False)
        axis.set_xlabel(_unit(runs))
        axis.grid(alpha=0.3)
        if len(lines) > 1:
            axis.legend(fontsize=8)
    for axis in axes[len(panels) :]:
        axis.remove()
    title = "\n".join(_numbered(runs))
    figure.suptitle(title, x=0.01, ha="left", fontsize=8, parse_math=False)
    return figure


def _small_panels(runs: Sequence[RunLog], panels: Panels, width: float) -> Any:
    """Return a figure of panels without axes, which take five times as long as all the rest."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Bbox, BboxTransform

    rows, head = -(-len(panels) // COLUMNS), 0.7 + 0.15 * len(runs)
    figure = new_figure(width, head + rows)
    figure.set_layout_engine(None)
    page = figure.add_axes((0, 0, 1, rows / (head + rows)), xlim=(0, COLUMNS), ylim=(rows, 0))
    page.set_axis_off()
    at = [at for lines in panels.values() for line in lines.values() for at in line.at]
    first, last = min(at), max(at)
    curves: dict[str, Line2D] = {}
    for place, (key, lines) in enumerate(panels.items()):
        row, column = divmod(place, COLUMNS)
        finite = [v for line in lines.values() for v in line.values if math.isfinite(v)]
        low, high = min(finite, default=math.nan), max(finite, default=math.nan)
        cell = Bbox.from_extents(column + 0.05, row + 0.85, column + 0.95, row + 0.3)
        size = [span if span > SMALLEST else 1.0 for span in (last - first, high - low)]
        scale = BboxTransform(Bbox.from_bounds(first, low, *size), cell) + page.transData
        for (number, mode), line in lines.items():
            style = _style(runs, number, mode)
            curve = page.add_artist(Line2D(*line, transform=scale, **style))
            curves.setdefault(style["label"], curve)
        title = f"{key}: {low:.4g} to {high:.4g}"
        page.text(column + 0.5, row + 0.2, title, fontsize=8, ha="center", parse_math=False)
    title = "\n".join([*_numbered(runs), f"{_unit(runs)}s {first:g} to {last:g}"])
    figure.suptitle(title, x=0.01, ha="left", fontsize=8, parse_math=False)
    figure.legend(handles=[*curves.values()], fontsize=8)
    return figure


def _style(runs: Sequence[RunLog], number: int, mode: str) -> dict[str, Any]:
    """Return the arguments of a line in a picture."""
    style = {"ls": "--", "marker": MARKERS[mode], "ms": 4} if mode in MARKERS else {}
    return {**style, "color": f"C{number}", "label": _label(runs, number, mode)}


def runs_in_terminal(runs: Sequence[RunLog], width: int, keys: Sequence[str]) -> str:
    """Return the curves drawn with characters, a panel for each quantity, after the runs' names."""
    panels = _numbered(runs)
    for key, lines in _panels(runs, keys).items():
        curves = []
        for (number, mode), line in lines.items():
            points = [point for point in zip(*line, strict=True) if math.isfinite(point[1])]
            if points:  # plotext fails on a legend whose line begins with NaN
                marker = "o" if mode in MARKERS else "braille"
                positions, values = zip(*points, strict=True)
                curves.append((positions, values, marker, _label(runs, number, mode)))
        panels.append(panel(key, _unit(runs), width, 12, curves))
    return "\n".join(panels)


def _label(runs: Sequence[RunLog], number: int, mode: str) -> str:
    return f"{number + 1} {mode}" if len(runs) > 1 else mode


def _numbered(runs: Sequence[RunLog]) -> list[str]:
    """Return the folders of several runs, or the files in one folder, below a common folder."""
    paths = [run.path.resolve().parent for run in runs]
    if len({*paths}) < len(paths):
        paths = [run.path.resolve() for run in runs]
    common = os.path.commonpath([path.parent for path in paths])
    names = [printable(os.path.relpath(path, common)) for path in paths]
    return [f"{number}: {name}" for number, name in enumerate(names, 1) if len(names) > 1]


def _unit(runs: Sequence[RunLog]) -> str:
    return "epoch" if all(run.batches for run in runs) else "iteration"


def _panels(runs: Sequence[RunLog], keys: Sequence[str]) -> Panels:
    """Return the lines of each quantity by run and mode."""
    panels: Panels = {}
    for number, run in enumerate(runs):
        for (key, mode), line in run.series(in_epochs=_unit(runs) == "epoch").items():
            panels.setdefault(key, {})[number, mode] = line
    absent = [key for key in keys if key not in panels]
    if not panels:
        raise ValueError(f"the logs have no {', '.join(absent) or 'curve'}, and no numbers at all")
    if absent:
        hint = suggest(absent[0], panels)
        raise ValueError(f"the logs have no {', '.join(absent)}; {hint}")
    return {key: panels[key] for key in keys or panels}
