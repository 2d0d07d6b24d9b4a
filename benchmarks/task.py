"""What a loop trains, and the meter that takes its time."""

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
    """Takes the processor time at marked steps of a run, and at its start.

    Args:
        marks: The numbers of the steps, from 0; the run ends at the last.
        at_mark: Called at each of the others; it may take time, which does not count.
    """

    def __init__(self, marks: Sequence[int], at_mark: Callable[[], None] | None = None) -> None:
        self.marks = marks
        self.at_mark = at_mark
        self.steps = 0
        self.begun = 0.0
        self.seconds: list[float] = []
        self._aside = 0.0

    def begin(self) -> None:
        """Note the start of the run."""
        self.begun = time.thread_time()

    def at_step(self) -> bool:
        """Note the time where a marked step begins; return whether the run ends here."""
        step, self.steps = self.steps, self.steps + 1
        ends = step >= self.marks[-1]
        if step in self.marks:
            now = time.thread_time()
            self.seconds.append(now - self._aside)
            if self.at_mark is not None and not ends:
                self.at_mark()
                self._aside += time.thread_time() - now
        return ends


@dataclass(frozen=True)
class Task:
    """What a loop trains, and for how long."""

    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """That of a batch."""
    meter: Meter
    directory: str
    length: int
    """Steps of an epoch, or of the run if it is counted in iterations."""
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
