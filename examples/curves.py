"""Read a run's ``.log.json`` and draw its schedules, loss, gradients and accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw", "read_log"]

Row = dict[str, Any]

HELD_OUT = (
    ("raw_", "held out, raw weights", "tab:brown"),
    ("", "held out, averaged weights", "tab:orange"),
)
"""How the numbers of an evaluation are named in the log, and drawn."""

STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "right",
    "axes.titlesize": "small",
    "axes.titlecolor": "dimgray",
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


def read_log(folder: Path, *, earlier: bool = False) -> list[Row]:
    """Return the rows of the newest ``.log.json`` in a folder.

    Args:
        folder: The folder of the logs.
        earlier: Whether to begin with the rows of the run before, from which the newest run was
            resumed. Of two rows of one iteration the newer row counts.
    """
    logs = sorted(folder.glob("*.log.json"))
    rows: dict[tuple[int, bool, int], Row] = {}
    for log in logs if earlier else logs[-1:]:
        for line in log.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "mode" in row:  # the first line may be the run's meta
                key = (row["epoch"], row["mode"] == "val", row["iter"])
                # an epoch may be evaluated twice: with the raw weights and with their average
                rows[key] = {**rows.get(key, {}), **row}
    return [rows[key] for key in sorted(rows)]


def draw(
    rows: list[Row],
    path: Path,
    *,
    batches: int,
    warm_up: int = 0,
    momentum: Sequence[float] = (),
    max_norm: float | None = None,
) -> None:
    """Draw learning rate, loss, gradient norm (if logged) and accuracy over the epochs.

    Args:
        rows: The rows from ``read_log``.
        path: The image to write.
        batches: The number of batches in an epoch.
        warm_up: The length of the warm-up in iterations; the warm-up is shaded.
        momentum: The momentum of every iteration, drawn beside the learning rate.
        max_norm: The norm to which gradients are clipped.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    train = [row for row in rows if row["mode"] == "train"]
    val = [row for row in rows if row["mode"] == "val"]
    x_train = [row["epoch"] - 1 + row["iter"] / batches for row in train]
    x_val = [row["epoch"] for row in val]
    panels = {"rate": 1.0, "loss": 1.2, "norm": 0.8, "accuracy": 1.4}
    if not all("grad_norm" in row for row in train):
        del panels["norm"]

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 2.3 * len(panels)), layout="constrained")
        found = figure.subplots(len(panels), 1, sharex=True, height_ratios=list(panels.values()))
        axes = dict(zip(panels, found, strict=True))
        figure.suptitle("Digits: mmcv's hooks in a Lightning Trainer", fontweight="bold")
        _schedules(axes["rate"], x_train, train, batches, warm_up, momentum)

        loss, accuracy = axes["loss"], axes["accuracy"]
        for axis, key in ((loss, "loss"), (accuracy, "accuracy")):
            axis.plot(x_train, [row[key] for row in train], color="tab:blue", label="train")
            for name, label, color in HELD_OUT:
                if any(name + key in row for row in val):
                    values = [row.get(name + key, float("nan")) for row in val]
                    axis.plot(x_val, values, "o--", color=color, label=label)
        loss.set(title="TextLoggerHook", ylabel="loss", yscale="log")
        accuracy.set(title="EMAHook", ylabel="accuracy", xlabel="epoch")
        accuracy.set_ylim(top=1.01)
        accuracy.legend(loc="lower right")

        if "norm" in axes:
            norm = axes["norm"]
            norm.plot(x_train, [row["grad_norm"] for row in train], color="tab:red")
            norm.set(title="OptimizerHook", ylabel="gradient norm")
            norm.set_ylim(bottom=0)
            if max_norm is not None:
                norm.axhline(max_norm, color="dimgray", linestyle="--", linewidth=1)
                end = max([1, *x_train])
                place = {"ha": "right", "va": "bottom", "color": "dimgray", "size": "small"}
                norm.text(end, max_norm, "clipped above", **place)
        if val:
            last = (x_val[-1], val[-1]["accuracy"])
            place = {"xytext": (0, -24), "textcoords": "offset points", "ha": "right"}
            accuracy.annotate(f"{last[1]:.4f}", last, color="tab:orange", **place)
        accuracy.set_xlim(0, max([1, *x_train]) * 1.02)
        accuracy.set_xticks(range(max([1, *x_val]) + 1))
        figure.savefig(path, dpi=120)


def _schedules(
    axis: Any,
    x_train: list[float],
    train: list[Row],
    batches: int,
    warm_up: int,
    momentum: Sequence[float],
) -> None:
    axis.plot(x_train, [row["lr"] for row in train], color="tab:green")
    axis.set(title="LrUpdaterHook")
    axis.set_ylabel("learning rate", color="tab:green")
    axis.set_ylim(bottom=0)
    if warm_up:
        end = warm_up / batches
        axis.axvspan(0, end, color="tab:green", alpha=0.12, lw=0)
        axis.text(end / 2, 0, "warm-up", ha="center", va="bottom", color="tab:green")
    if momentum:
        axis.set(title="LrUpdaterHook, MomentumUpdaterHook")
        beside = axis.twinx()
        x_all = [(index + 1) / batches for index in range(len(momentum))]
        beside.plot(x_all, momentum, color="tab:purple", linestyle=":")
        beside.set_ylabel("momentum", color="tab:purple")
        beside.grid(visible=False)
