"""mmcv's LogBuffer, holding tensors on their device and reading them once per average."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["LogBuffer"]


class LogBuffer:
    """The values of the steps since the last ``clear``, and their averages.

    ``average(n)`` gives ``sum(value * count) / sum(count)`` over the last ``n`` updates of each
    key (all of them for ``n=0``), as mmcv computes it, to the last bit.

    Note:
        Departure from mmcv: a value may be a tensor. It is kept detached, on its device, until
        an average needs it; then all tensors needed are stacked and copied to the host at once.
        What one logger has averaged is not computed again for the next.
    """

    _averages: tuple[int, dict[str, float]] | None = None  # of the last n values

    def __init__(self) -> None:
        self.val_history: OrderedDict[str, list[Any]] = OrderedDict()
        self.n_history: OrderedDict[str, list[int]] = OrderedDict()
        self.output: OrderedDict[str, Any] = OrderedDict()
        self.ready = False

    def clear(self) -> None:
        """Forget the history and the averages."""
        self.val_history.clear()
        self.n_history.clear()
        self._averages = None
        self.clear_output()

    def clear_output(self) -> None:
        """Forget the averages."""
        self.output.clear()
        self.ready = False

    def update(self, vars: Mapping[str, Any], count: int = 1) -> None:
        """Append one step's values.

        Args:
            vars: A number or a 0-d tensor by key.
            count: The weight of the step, usually its number of samples.
        """
        if not isinstance(vars, Mapping):
            raise TypeError(f"vars must be a dict, got {vars!r}")
        self._averages = None
        for key, value in vars.items():
            if isinstance(value, torch.Tensor):
                value = value.detach()
            self.val_history.setdefault(key, []).append(value)
            self.n_history.setdefault(key, []).append(count)

    def trim(self, n: int) -> None:
        """Forget all but the last ``n`` values of each key."""
        self._averages = None
        for history in (self.val_history, self.n_history):
            for values in history.values():
                del values[:-n]

    def average(self, n: int = 0) -> None:
        """Average the last ``n`` values of each key, or all, into ``output``."""
        if n < 0:
            raise ValueError(f"n must be at least 0, got {n}")
        if self._averages is None or self._averages[0] != n:
            self._averages = n, self._computed(n)
        self.output.update(self._averages[1])
        self.ready = True

    def _computed(self, n: int) -> dict[str, float]:
        self._read(n)
        averages = {}
        for key, values in self.val_history.items():
            counts = np.array(self.n_history[key][-n:])
            if len(counts):
                averages[key] = float(np.sum(np.array(values[-n:]) * counts) / np.sum(counts))
        return averages

    def _read(self, n: int) -> None:
        """Replace the tensors among the last ``n`` values by numbers, with one copy per device."""
        places: dict[torch.device, dict[torch.dtype, list[tuple[list[Any], int]]]] = {}
        for values in self.val_history.values():
            for index in range(max(len(values) - n, 0) if n else 0, len(values)):
                value = values[index]
                if isinstance(value, torch.Tensor):
                    if value.ndim:
                        values[index] = value = (
                            value.reshape(()) if value.numel() == 1 else value.float().mean()
                        )
                    of_device = places.setdefault(value.device, {})
                    of_device.setdefault(value.dtype, []).append((values, index))
        for device, by_dtype in places.items():
            # one dtype for the copy; float64 holds float32, bfloat16 and integers exactly
            wide = torch.float64 if device.type != "mps" else torch.float32
            stacks = [
                torch.stack([values[index] for values, index in found]).to(wide)
                for found in by_dtype.values()
            ]
            numbers = iter(torch.cat(stacks).tolist())
            for found in by_dtype.values():
                for values, index in found:
                    values[index] = next(numbers)
