"""``LogBuffer``: mmcv's buffer of logged values, which reads tensors once per average."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from numbers import Integral, Real
from operator import attrgetter
from typing import Any

import numpy as np
import torch

__all__ = ["LogBuffer"]

MAX_HISTORY = 100_000
"""Values of a key that are kept when the last ones are averaged."""

MAX_UNREAD = 10_000
"""Values of a key after which tensors are read without an average."""


class LogBuffer:
    """The values of the steps since the last ``clear``, and their averages.

    ``average(n)`` gives ``sum(value * count) / sum(count)`` over the last ``n`` updates of each
    key (all of them for ``n=0``), as mmcv computes it, to the last bit.

    Note:
        Departures from mmcv: a value may be a tensor. It is kept detached, on its device, until
        an average needs it; then all tensors needed are stacked and copied to the host at once.
        Without averages this is done every 10,000 values, for they take device memory.
        Checkpoints include the values, so that a resumed run has the same averages.
        ``average(n)`` removes all but the last 100,000 values of a key, or ``n`` if that is more
        (in mmcv memory grows with the epoch, or with the run if it is counted in iterations).
    """

    def __init__(self) -> None:
        self.val_history: OrderedDict[str, list[Any]] = OrderedDict()
        self.n_history: OrderedDict[str, list[int]] = OrderedDict()
        self.output: OrderedDict[str, Any] = OrderedDict()
        self.ready = False

    def clear(self) -> None:
        """Remove the values and the averages."""
        self.val_history.clear()
        self.n_history.clear()
        self.clear_output()

    def clear_output(self) -> None:
        """Remove the averages."""
        self.output.clear()
        self.ready = False

    def update(self, vars: Mapping[str, Any], count: int = 1) -> None:
        """Append one step's values.

        Args:
            vars: A number or a 0-d tensor by key.
            count: The weight of the step, usually its number of samples.
        """
        # this runs in each step: the usual types have a short way
        if type(vars) is not dict and not isinstance(vars, Mapping):
            raise TypeError(f"vars must be a dict, got {vars!r}")
        for key, value in vars.items():
            try:
                values, counts = self.val_history[key], self.n_history[key]
            except KeyError:
                values = self.val_history.setdefault(key, [])
                counts = self.n_history.setdefault(key, [])
            is_tensor = type(value) is not float and isinstance(value, torch.Tensor)
            values.append(value.detach() if is_tensor and value.requires_grad else value)
            counts.append(count)
            if is_tensor and len(values) % MAX_UNREAD == 0:
                self._read(0)

    def replace(self, vars: Mapping[str, Any]) -> None:
        """Replace all values of these keys by new ones, which then are their averages.

        >>> buffer = LogBuffer()
        >>> for count in (1, 2):
        ...     buffer.replace({"skipped_steps": count})
        >>> buffer.average()
        >>> dict(buffer.output)
        {'skipped_steps': 2.0}
        """
        for history in (self.val_history, self.n_history):
            for key in vars:
                history.pop(key, None)
        self.update(vars)

    def trim(self, n: int) -> None:
        """Remove all but the last ``n`` values of each key."""
        for history in (self.val_history, self.n_history):
            for values in history.values():
                del values[:-n]

    def average(self, n: int = 0) -> None:
        """Average the last ``n`` values of each key, or all, into ``output``."""
        if n < 0:
            raise ValueError(f"n must be at least 0, got {n}")
        self._read(n)
        for key, values in self.val_history.items():
            counts = self.n_history[key][-n:]
            if counts:
                self.output[key] = _mean(values[-n:], counts)
        self.ready = True
        if n:
            self.trim(max(n, MAX_HISTORY))

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers, for a checkpoint; other values are left out."""
        self._read(0)
        keys = [k for k, v in self.val_history.items() if all(isinstance(x, Real) for x in v)]
        return {
            "values": {key: _pack(self.val_history[key]) for key in keys},
            "counts": {key: _pack(self.n_history[key]) for key in keys},
            "output": {k: float(v) for k, v in self.output.items() if isinstance(v, Real)},
            "ready": self.ready,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace all values and averages by those of :meth:`state_dict`."""
        self.clear()
        self.val_history.update({key: v.tolist() for key, v in state["values"].items()})
        self.n_history.update({key: v.tolist() for key, v in state["counts"].items()})
        self.output.update(state["output"])
        self.ready = state["ready"]

    def _read(self, n: int) -> None:
        """Replace the tensors among the last ``n`` values by numbers, with one copy per device."""
        places = [
            (values, index)
            for values in self.val_history.values()
            for index in range(max(len(values) - n, 0) if n else 0, len(values))
            if type(values[index]) is not float and isinstance(values[index], torch.Tensor)
        ]
        if places:
            numbers = _numbers([values[index] for values, index in places])
            for (values, index), number in zip(places, numbers, strict=True):
                values[index] = number


def _numbers(tensors: list[torch.Tensor]) -> list[float]:
    """Return the number in each tensor, or their mean, with one copy per device."""
    kinds = {*map(attrgetter("device", "dtype", "ndim"), tensors)}
    if len(kinds) == 1 and not tensors[0].ndim:  # nearly always
        return torch.stack(tensors).tolist()
    numbers = [0.0] * len(tensors)
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        here = [index for index, tensor in enumerate(tensors) if tensor.device == device]
        scalars = [_scalar(tensors[index]) for index in here]
        if len({scalar.dtype for scalar in scalars}) > 1:
            # one dtype for the copy; float64 holds float32, bfloat16 and integers exactly
            wide = torch.float64 if device.type != "mps" else torch.float32
            scalars = [scalar.to(wide) for scalar in scalars]
        for index, number in zip(here, torch.stack(scalars).tolist(), strict=True):
            numbers[index] = number
    return numbers


def _scalar(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(()) if tensor.numel() == 1 else tensor.float().mean()


def _mean(values: list[Any], counts: list[int]) -> float:
    """Return mmcv's average, to the last bit."""
    # the usual case takes a third of the time; a weight of 1 changes nothing of a float
    if counts.count(1) == len(counts) and {*map(type, values)} == {float}:
        return float(np.add.reduce(values) / len(counts))  # np.sum's own way, without its checks
    weights = np.array(counts)
    return float(np.sum(np.array(values) * weights) / np.sum(weights))


def _pack(numbers: list[Any]) -> torch.Tensor:
    is_integral = all(isinstance(number, Integral) for number in numbers)
    return torch.tensor(numbers, dtype=torch.int64 if is_integral else torch.float64)
