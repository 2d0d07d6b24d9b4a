"""``HistoryBuffer``: the values of one scalar, and what its readers ask of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import torch

__all__ = ["HistoryBuffer", "settle"]

_MOST_PENDING = 1000


class HistoryBuffer:
    """A series of ``(value, iteration)`` with the averages that writers want.

    Args:
        max_length: How many values are kept; the oldest goes first.

    Source: fvcore's ``HistoryBuffer``; the numbers equal its to the last bit.

    Note:
        Departure from fvcore: a value may be a tensor on a device. It is kept there until somebody
        reads: a training step does not wait for it.

    >>> loss = HistoryBuffer()
    >>> for value in (4.0, 1.0, 2.0):
    ...     loss.update(value)
    >>> loss.latest(), loss.median(3), loss.avg(2), round(loss.global_avg(), 3)
    (2.0, 2.0, 1.5, 2.333)
    """

    def __init__(self, max_length: int = 1_000_000) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length!r}")
        self._data: deque[list[Any]] = deque(maxlen=max_length)  # of [value, iteration]
        self._pending: list[list[Any]] = []  # those not read yet, the oldest first
        self._count = self._averaged = 0
        self._global_avg = 0.0

    def update(self, value: Any, iteration: float | None = None) -> None:
        """Add a value.

        Args:
            value: A number, or a tensor of one element.
            iteration: When it was; how many came before, by default.
        """
        entry = [_kept(value), self._count if iteration is None else iteration]
        self._data.append(entry)
        self._count += 1
        self._pending.append(entry)
        if len(self._pending) >= _MOST_PENDING:
            settle([self])

    def latest(self) -> float:
        """The last value."""
        return float(self._last(1)[0])

    def median(self, window_size: int) -> float:
        """The median of the last values."""
        return float(np.median(self._last(window_size)))

    def avg(self, window_size: int) -> float:
        """The mean of the last values."""
        return float(np.mean(self._last(window_size)))

    def global_avg(self) -> float:
        """The mean of all values, those included that are no longer kept."""
        settle([self])
        return self._global_avg

    def values(self) -> list[tuple[float, float]]:
        """All values that are kept, with their iterations."""
        settle([self])
        return [(value, iteration) for value, iteration in self._data]

    def last_iteration(self) -> Any:
        """When the last value was added."""
        return self._data[-1][1]

    def count_since(self, iteration: float) -> int:
        """How many of the last values are of later iterations."""
        count = 0
        for _, when in reversed(self._data):
            if when <= iteration:
                break
            count += 1
        return count

    def _last(self, window_size: int) -> list[float]:
        settle([self])
        entries = list(islice(reversed(self._data), window_size))
        return [value for value, _ in reversed(entries)]

    def _take(self) -> None:
        for value, _ in self._pending:
            self._averaged += 1
            self._global_avg += (value - self._global_avg) / self._averaged
        self._pending.clear()


def settle(buffers: Iterable[HistoryBuffer]) -> None:
    """Read what several buffers hold on devices, with one copy for each device."""
    buffers = [buffer for buffer in buffers if buffer._pending]
    places: dict[torch.device, list[list[Any]]] = {}
    for buffer in buffers:
        for entry in buffer._pending:
            if isinstance(entry[0], torch.Tensor):
                places.setdefault(entry[0].device, []).append(entry)
    for device, entries in places.items():
        # float64 holds float32, bfloat16 and integers exactly
        wide = torch.float32 if device.type == "mps" else torch.float64
        numbers = torch.stack([value.reshape(()).to(wide) for value, _ in entries]).tolist()
        for entry, number in zip(entries, numbers, strict=True):
            entry[0] = number
    for buffer in buffers:
        buffer._take()


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        if value.numel() != 1:
            raise ValueError(f"a scalar has one element, got a tensor of shape {value.shape}")
        return value.detach().clone()  # a hook may change it in place
    return float(value)
