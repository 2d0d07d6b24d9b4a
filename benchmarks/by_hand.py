"""The work of the default set, written by hand: the floors of the bench ``defaults``."""

from __future__ import annotations

import datetime
import json
import math
import os
import time
from typing import Any

import lightning as L
import numpy as np
import torch

from benchmarks.dispatch import Muted
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["ByHand", "InLists"]


class ByHand(Muted):
    """Do everything in one callback: a cosine, two times, the loss, and a line of averages.

    Args:
        directory: The folder of the log's files.
        steps: The length of the cosine in steps.
        interval: Steps between two lines.
    """

    def __init__(self, directory: str, steps: int, interval: int) -> None:
        super().__init__("on_train_batch_start", "on_train_batch_end")
        self.directory, self.steps, self.interval = directory, steps, interval
        self.values: dict[str, list[Any]] = {"data_time": [], "time": [], "loss": []}
        self.last = time.perf_counter()

    def on_train_start(self, trainer: L.Trainer, module: Any) -> None:
        self.counts = trainer.fit_loop.epoch_loop.batch_progress.total
        self.group = trainer.optimizers[0].param_groups[0]

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        self.values["data_time"].append(time.perf_counter() - self.last)
        self.group["lr"] = 0.005 * (1 + math.cos(math.pi * self.counts.completed / self.steps))

    def on_train_batch_end(
        self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        self.values["loss"].append(outputs["loss"])
        now = time.perf_counter()
        self.values["time"].append(now - self.last)
        self.last = now
        if (index + 1) % self.interval == 0:
            write_line(self.directory, index, averages(self.values))


class InLists(Muted):
    """Call three fixed hooks from lists of methods; no hook can be added.

    The arguments are those of :class:`ByHand`.
    """

    def __init__(self, directory: str, steps: int, interval: int) -> None:
        super().__init__("on_train_batch_start", "on_train_batch_end")
        self.values: dict[str, list[Any]] = {}
        rate, times, line = Rate(steps), Times(), Line(directory, interval)
        self.before, self.after = [rate.before, times.before], [times.after, line.after]

    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def on_train_start(self, trainer: L.Trainer, module: Any) -> None:
        self.counts = trainer.fit_loop.epoch_loop.batch_progress.total
        self.optimizer = trainer.optimizers[0]

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        for method in self.before:
            method(self)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        self.update({"loss": outputs["loss"]})
        for method in self.after:
            method(self)


class Rate:
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def before(self, run: InLists) -> None:
        rate = 0.005 * (1 + math.cos(math.pi * run.counts.completed / self.steps))
        run.optimizer.param_groups[0]["lr"] = rate


class Times:
    def __init__(self) -> None:
        self.last = time.perf_counter()

    def before(self, run: InLists) -> None:
        run.update({"data_time": time.perf_counter() - self.last})

    def after(self, run: InLists) -> None:
        now = time.perf_counter()
        run.update({"time": now - self.last})
        self.last = now


class Line:
    def __init__(self, directory: str, interval: int) -> None:
        self.directory, self.interval = directory, interval

    def after(self, run: InLists) -> None:
        if (run.counts.completed + 1) % self.interval == 0:
            write_line(self.directory, run.counts.completed, averages(run.values))


def averages(values: dict[str, list[Any]]) -> dict[str, float]:
    """Return the average of each list, and empty them."""
    values["loss"] = torch.stack(values["loss"]).tolist()
    found = {name: float(np.mean(numbers)) for name, numbers in values.items()}
    for numbers in values.values():
        numbers.clear()
    return found


def write_line(directory: str, step: int, values: dict[str, float]) -> None:
    """Print a line, and append it to a file, and as JSON to another."""
    line = f"[{step + 1}]\t" + ", ".join(f"{name}: {value:.4f}" for name, value in values.items())
    default_logger(0).info("%s", line)
    stamp = datetime.datetime.now().isoformat(" ", "milliseconds")
    for name, text in ("a.log", f"{stamp} {line}"), ("a.log.json", json.dumps(values)):
        file = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{text}\n".encode())
        os.close(file)
