"""``EventStorage``, ``Timer`` and functions for hooks of Pet."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from lightning_hooks.dialects.steps import storage
from lightning_hooks.dialects.steps.hooks import is_first_rank
from lightning_hooks.hooks.batch_norm import population_stats

__all__ = [
    "EventStorage",
    "Timer",
    "get_bn_modules",
    "logging_rank",
    "update_bn_stats",
]


class EventStorage(storage.EventStorage):
    """The scalars, images and histograms of a run."""


class Timer:
    """A stopwatch for parts, from ``tic`` to ``toc``, and for the whole time without pauses.

    ``diff`` is the last part in seconds, ``total_time`` the sum of the parts, ``calls`` the number
    of parts and ``average_time`` the mean. ``seconds()`` is the time from the start without pauses.

    >>> timer = Timer()
    >>> timer.pause()
    >>> timer.is_paused(), timer.calls, timer.average_time
    (True, 0, 0.0)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again from zero."""
        self.start_time = time.perf_counter()
        self.diff = self.total_time = 0.0
        self.calls = 0
        self._before = 0.0  # seconds before the last pause
        self._resumed: float | None = self.start_time
        self._starts = 1

    def tic(self) -> None:
        """Start a part."""
        self.start_time = time.perf_counter()

    def toc(self, average: bool = True) -> float:
        """End the part; return the mean of all parts, or this part's seconds."""
        self.diff = time.perf_counter() - self.start_time
        self.total_time += self.diff
        self.calls += 1
        return self.average_time if average else self.diff

    @property
    def average_time(self) -> float:
        """The mean seconds of a part."""
        return self.total_time / self.calls if self.calls else 0.0

    def pause(self) -> None:
        """Pause.

        Raises:
            ValueError: for a paused timer.
        """
        self._before, self._resumed = self._running_seconds("pause()"), None

    def resume(self) -> None:
        """Continue after a pause.

        Raises:
            ValueError: for a running timer.
        """
        if self._resumed is not None:
            raise ValueError("Timer.resume() needs a paused timer, and this timer runs")
        self._resumed = time.perf_counter()
        self._starts += 1

    def _running_seconds(self, method: str) -> float:
        if self._resumed is None:
            raise ValueError(f"Timer.{method} needs a running timer, and this timer is paused")
        return self.seconds()

    def is_paused(self) -> bool:
        """Return whether the timer is paused."""
        return self._resumed is None

    def seconds(self) -> float:
        """Return the seconds since the start, without pauses."""
        running = 0.0 if self._resumed is None else time.perf_counter() - self._resumed
        return self._before + running

    def avg_seconds(self) -> float:
        """Return the seconds between two pauses, on average."""
        return self.seconds() / self._starts


def logging_rank(*parts: Any, distributed: bool = True, local_rank: int | None = None) -> None:
    """Log a line, on the first rank only.

    Args:
        parts: Parts of the line, joined without spaces.
        distributed: Whether other ranks are silent.
        local_rank: Number of this process, passed by Pet's loops; taken from torch by default.
    """
    is_first = is_first_rank() if local_rank is None else local_rank == 0
    if is_first or not distributed:
        logging.getLogger("lightning_hooks").info("%s", "".join(map(str, parts)))


def get_bn_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the BatchNorm layers in train mode, updated by ``update_bn_stats``."""
    return [*population_stats.bn_layers(model)]


def update_bn_stats(
    model: torch.nn.Module,
    data_loader: Iterable[Any],
    device: torch.device | str | None = None,
    num_iters: int = 200,
) -> None:
    """Set the statistics of BatchNorm layers from some batches.

    Args:
        model: The model.
        data_loader: Iterable of the model's inputs.
        device: Device for the inputs; by default the inputs stay where they are.
        num_iters: The maximum number of batches.

    See :func:`lightning_hooks.update_bn_stats` for the formula.
    """

    def forward(model: Any, batch: Any) -> Any:
        return model(batch if device is None else move_data_to_device(batch, torch.device(device)))

    population_stats.update_bn_stats(model, data_loader, num_iters, forward=forward)
