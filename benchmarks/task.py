"""The task of a training loop, and the meter of the loop's time."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.measure import make_loader

__all__ = ["Meter", "Task"]


class Meter:
    """Takes the processor time at marked steps of a run, and at the start of the run.

    Args:
        marks: The numbers of the steps, from 0; the run ends at the last.
        pass_on: Called at every second mark, where a turn ends.
    """

    def __init__(self, marks: Sequence[int], pass_on: Callable[[], None] | None = None) -> None:
        self.marks = marks
        self.pass_on = pass_on
        self.steps = 0
        self.begun = 0.0
        self.seconds: list[float] = []

    def begin(self) -> None:
        """Note the start of the run."""
        self.begun = time.thread_time()

    def at_step(self) -> bool:
        """Note the time where a marked step begins; return whether the run ends here."""
        step, self.steps = self.steps, self.steps + 1
        ends = step >= self.marks[-1]
        if step in self.marks:
            self.seconds.append(time.thread_time())
            if self.pass_on is not None and len(self.seconds) % 2 == 0 and not ends:
                self.pass_on()
        return ends


@dataclass(frozen=True)
class Task:
    """The net, the data and the length of a training."""

    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """That of a batch."""
    meter: Meter
    directory: str
    length: int
    """Steps of an epoch, or of the run if it is counted in iterations."""
    interval: int = 50
    """Steps between two lines of the log."""
    by_epoch: bool = True
    validates: bool = False
    saves: bool = False

    @functools.cached_property
    def loader(self) -> Any:
        """The batches of an epoch."""
        rows = self.shape[0]
        return make_loader(torch.rand(self.length * rows, *self.shape[1:]), batch_size=rows)

    @property
    def epochs(self) -> int:
        """More than the meter takes."""
        return self.meter.marks[-1] // self.length + 2
