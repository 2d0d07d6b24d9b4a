"""``HistoryBuffer``: the values of one scalar, with medians and averages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.arguments import check_int

__all__ = ["HistoryBuffer", "read_pending"]

_MAX_PENDING = 1000
"""Number of unread values, after which a buffer copies them from the device."""


class HistoryBuffer:
    """A series of ``(value, iteration)`` with medians and averages.

    Args:
        max_length: Number of values kept; the oldest are dropped.

    Source: fvcore's ``HistoryBuffer``; the numbers are bit-equal.

    Note:
        Departure from fvcore: a value may be a tensor on a device. The first reading copies the
        tensor to the host, so that a training step does not wait for the device.

    >>> loss = HistoryBuffer()
    >>> for value in (4.0, 1.0, 2.0):
    ...     loss.update(value)
    >>> loss.latest(), loss.median(3), loss.avg(2), round(loss.global_avg(), 3)
    (2.0, 2.0, 1.5, 2.333)
    """

    def __init__(self, max_length: int = 1_000_000) -> None:
        check_int("max_length", max_length, 1)
        self._data: deque[list[Any]] = deque(maxlen=max_length)  # [value, iteration]
        self._pending: list[list[Any]] = []  # unread entries, the oldest first
        self._count = self._averaged = 0
        self._global_avg = 0.0

    def update(self, value: Any, iteration: float | None = None) -> None:
        """Add a value.

        Args:
            value: Number, or tensor of one element.
            iteration: Iteration of the value; by default the number of earlier values.
        """
        entry = [_as_stored(value), self._count if iteration is None else iteration]
        self._data.append(entry)
        self._count += 1
        self._pending.append(entry)
        if len(self._pending) >= _MAX_PENDING:
            read_pending([self])

    def latest(self) -> float:
        """Return the last value."""
        return float(self._last(1)[0])

    def median(self, window_size: int) -> float:
        """Return the median of the last values."""
        return float(np.median(self._last(window_size)))

    def avg(self, window_size: int) -> float:
        """Return the mean of the last values."""
        return float(np.mean(self._last(window_size)))

    def global_avg(self) -> float:
        """Return the mean of all values, including dropped values."""
        read_pending([self])
        return self._global_avg

    def values(self) -> list[tuple[float, float]]:
        """Return the kept values with their iterations."""
        read_pending([self])
        return [(value, iteration) for value, iteration in self._data]

    def last_iteration(self) -> Any:
        """Return the iteration of the last value."""
        return self._data[-1][1]

    def count_since(self, iteration: float) -> int:
        """Return the number of values after an iteration."""
        return sum(1 for _ in takewhile(lambda entry: entry[1] > iteration, reversed(self._data)))

    def _last(self, window_size: int) -> list[float]:
        read_pending([self])
        entries = list(islice(reversed(self._data), window_size))
        return [value for value, _ in reversed(entries)]

    def _average_pending(self) -> None:
        for value, _ in self._pending:
            self._averaged += 1
            self._global_avg += (value - self._global_avg) / self._averaged
        self._pending.clear()


def read_pending(buffers: Iterable[HistoryBuffer]) -> None:
    """Copy the unread values of several buffers to the host, with one copy for each device."""
    buffers = [buffer for buffer in buffers if buffer._pending]
    by_device: dict[torch.device, list[list[Any]]] = {}
    for buffer in buffers:
        for entry in buffer._pending:
            if isinstance(entry[0], torch.Tensor):
                by_device.setdefault(entry[0].device, []).append(entry)
    for device, entries in by_device.items():
        # float64 holds float32, bfloat16 and integers exactly
        wide = torch.float32 if device.type == "mps" else torch.float64
        numbers = torch.stack([value.reshape(()).to(wide) for value, _ in entries]).tolist()
        for entry, number in zip(entries, numbers, strict=True):
            entry[0] = number
    for buffer in buffers:
        buffer._average_pending()


def _as_stored(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        if value.numel() != 1:
            raise ValueError(f"a scalar must have one element, got a tensor of shape {value.shape}")
        return value.detach().clone()  # hooks may change the tensor in place
    return float(value)
