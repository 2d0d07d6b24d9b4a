"""Reads a run's ``.log.json`` and draws its learning rate, loss and accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["draw", "read_log"]

Row = dict[str, Any]

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
        folder: Where the logs are.
        earlier: Whether the run went on from an earlier one, whose rows come first. Where both
            have a row of the same iteration, the newer one counts.
    """
    logs = sorted(folder.glob("*.log.json"))
    rows: dict[tuple[int, bool, int], Row] = {}
    for log in logs if earlier else logs[-1:]:
        for line in log.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "mode" in row:  # the first line may be the run's meta
                rows[row["epoch"], row["mode"] == "val", row["iter"]] = row
    return [rows[key] for key in sorted(rows)]


def draw(rows: list[Row], path: Path, *, batches: int, warm_up: int = 0) -> None:
    """Draw three panels over the epochs.

    Args:
        rows: What ``read_log`` returns.
        path: The image to write.
        batches: How many make an epoch.
        warm_up: The length of the warm-up, which is shaded, in iterations.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    train = [row for row in rows if row["mode"] == "train"]
    val = [row for row in rows if row["mode"] == "val"]
    x_train = [row["epoch"] - 1 + row["iter"] / batches for row in train]
    x_val = [row["epoch"] for row in val]

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 7.5), layout="constrained")
        rate, loss, accuracy = figure.subplots(3, 1, sharex=True)
        figure.suptitle("Digits: mmcv's hooks in a Lightning Trainer", fontweight="bold")

        rate.plot(x_train, [row["lr"] for row in train], color="tab:green")
        rate.set(title="CosineAnnealingLrUpdaterHook", ylabel="learning rate")
        rate.set_ylim(bottom=0)
        if warm_up:
            end = warm_up / batches
            rate.axvspan(0, end, color="tab:green", alpha=0.12, lw=0)
            rate.text(end / 2, 0, "warm-up", ha="center", va="bottom", color="tab:green")

        for axis, key in ((loss, "loss"), (accuracy, "accuracy")):
            axis.plot(x_train, [row[key] for row in train], color="tab:blue", label="train")
            held_out = [row[key] for row in val]
            label = "held out, averaged weights"
            axis.plot(x_val, held_out, "o--", color="tab:orange", label=label)
        loss.set(title="TextLoggerHook", ylabel="loss", yscale="log")
        accuracy.set(title="EMAHook", ylabel="accuracy", xlabel="epoch")
        accuracy.set_ylim(top=1.03)
        accuracy.legend(loc="lower right")
        if val:
            last = (x_val[-1], val[-1]["accuracy"])
            place = {"xytext": (0, -16), "textcoords": "offset points", "ha": "right"}
            accuracy.annotate(f"{last[1]:.4f}", last, color="tab:orange", **place)
        accuracy.set_xlim(0, max([1, *x_train]) * 1.02)
        accuracy.set_xticks(range(max([1, *x_val]) + 1))
        figure.savefig(path, dpi=120)
