"""``LogBuffer``: mmcv's buffer of logged values, each with an iteration."""

from __future__ import annotations

import contextlib
import itertools
import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.concatenated import concatenated, separated
from lightning_hooks.utils.plain_types import averageable, packed

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.line import Line

__all__ = ["LogBuffer", "Output"]

MAX_HISTORY = 100_000
"""The number of values kept per key after an average over the last values."""

MAX_UNREAD = 10_000
"""The number of values per key after which tensors are read without an average."""


class Output(OrderedDict[str, Any]):
    """The values of the next line: averages of steps, and results of hooks.

    Every write has a number. A reader that keeps the number of the last write gets each result
    once, also if a hook writes an equal value again.

    Args:
        values: The first values.
        news: A dict that gets every written value, too.
        number: The number of the last write before.

    >>> output = Output()
    >>> output["acc"] = 0.5
    >>> seen = output.number
    >>> output["missed"] = 3
    >>> output.results(since=0), output.results(since=seen)
    ({'acc': 0.5, 'missed': 3}, {'missed': 3})
    """

    def __init__(
        self,
        values: Mapping[str, Any] = MappingProxyType({}),
        *,
        news: dict[str, Any] | None = None,
        number: int = 0,
    ) -> None:
        super().__init__()
        self.news = {} if news is None else news
        self.number = number
        """The number of the last write."""
        self.averages: set[str] = set()
        """The names of the values that are averages, no results of hooks."""
        self._numbers: dict[str, int] = {}
        self.update(values)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self.number += 1
        self._numbers[name] = self.number
        self.averages.discard(name)
        self.news[name] = value

    def write_averages(self, averages: Mapping[str, float]) -> None:
        """Write averages of steps."""
        self.update(averages)
        self.averages |= averages.keys()

    def results(self, since: int = 0) -> dict[str, Any]:
        """Return hooks' results, or those written after the write with the number ``since``."""
        numbers, averages = self._numbers, self.averages
        return {k: v for k, v in self.items() if numbers[k] > since and k not in averages}

    def clear(self) -> None:
        """Remove all values."""
        super().clear()
        self.averages.clear()


class LogBuffer:
    """The values of the steps since the last ``clear``, and their averages.

    ``average(n)`` gives ``sum(value * count) / sum(count)`` over the last ``n`` updates of each
    key (all updates for ``n=0``), equal to mmcv's average to the last bit. ``window(n)`` gives the
    average over the last ``n`` iterations, for a logger with a separate interval.

    Hooks leave results for the loggers in ``output``.

    Args:
        progress: An object with the number of iterations done in ``completed``; each value is kept
            with the current number.

    Note:
        Departures from mmcv: a value may be a tensor. Tensors stay detached on the device until an
        average is needed; then all needed tensors are stacked and copied to the host at once.
        Without averages tensors are read every 10,000 values, to free device memory. ``update``
        raises for a value that is no number (in mmcv the average does). Checkpoints include the
        values, so a resumed run has the same averages. ``average(n)`` removes all but the last
        100,000 values of a key, or ``n`` if greater (in mmcv memory grows with the epoch, or with a
        run counted in iterations).
    """

    def __init__(self, progress: Any = None) -> None:
        self.val_history: OrderedDict[str, list[Any]] = OrderedDict()
        self.n_history: OrderedDict[str, list[int]] = OrderedDict()
        self.output: Output
        """The averages of the last :meth:`average`, and the results of hooks."""
        self.news: dict[str, Any] = {}
        """The values written or logged of late, until Lightning's callbacks get them."""
        self.output = Output(news=self.news)
        self._logged = 0  # the number of the last write before the last line
        self.loaded = 0
        """The number of the last write of :meth:`load_state_dict`."""
        self._iterations: dict[str, list[int]] = {}
        self.ready = False
        self.line: Line | None = None  # shown by a logger
        self.names: dict[str, None] = {}  # of all values ever, in the order of the first
        self.loss_names: frozenset[str] = frozenset()  # copies of the loss, left out of windows
        self.before_average: Callable[[], None] = _do_nothing  # may be set by a hook
        self.progress = SimpleNamespace(completed=0) if progress is None else progress

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "output" and not isinstance(value, Output):  # as old hooks assign a dict
            value = Output(value, news=self.news, number=self.output.number)
        super().__setattr__(name, value)

    @property
    def _histories(self) -> dict[str, dict[str, list[Any]]]:
        """Of each step and key the value, its weight and the iteration."""
        return {
            "values": self.val_history,
            "counts": self.n_history,
            "iterations": self._iterations,
        }

    def clear(self) -> None:
        """Remove the values and the averages."""
        for history in self._histories.values():
            history.clear()
        self.clear_output()

    def clear_output(self) -> None:
        """Remove the averages and results."""
        self.output.clear()
        self.ready = False

    def clear_logged(self) -> None:
        """Remove the averages and results if a line was logged since the last of them came."""
        if self._logged == self.output.number:
            self.clear_output()

    def update(self, vars: Mapping[str, Any], count: int = 1) -> None:
        """Append one step's values.

        Args:
            vars: A number or a 0-d tensor by key.
            count: The weight of the step, usually its number of samples.

        Raises:
            TypeError, OverflowError: if a value is no number, or too large for a float.
        """
        # called in each step: the usual types have a short way
        if type(vars) is not dict and not isinstance(vars, Mapping):
            raise TypeError(f"vars must be a dict, got {shown(vars)}")
        now = self.progress.completed
        for key, value in vars.items():
            is_tensor = type(value) is not float and isinstance(value, torch.Tensor)
            if is_tensor:
                value = value.detach() if value.requires_grad else value
            elif type(value) is not float:
                value = averageable(key, value)
            try:
                values, counts = self.val_history[key], self.n_history[key]
                iterations = self._iterations[key]
            except KeyError:
                averageable(key, value)
                values = self.val_history.setdefault(key, [])
                counts = self.n_history.setdefault(key, [])
                iterations = self._iterations.setdefault(key, [])
                self.names[key] = None
            values.append(value)
            counts.append(count)
            iterations.append(now)
            if is_tensor and len(values) % MAX_UNREAD == 0:
                self._read({key: MAX_UNREAD})  # the earlier values have been read

    def replace(self, vars: Mapping[str, Any]) -> None:
        """Replace all values of the given keys; each new value then is the average.

        >>> buffer = LogBuffer()
        >>> for count in (1, 2):
        ...     buffer.replace({"skipped_steps": count})
        >>> buffer.average()
        >>> dict(buffer.output)
        {'skipped_steps': 2.0}
        """
        self._keep(dict.fromkeys(vars, 0))
        self.update(vars)

    def trim(self, n: int) -> None:
        """Remove all but the last ``n`` values of each key."""
        self._keep({key: n for key, values in self.val_history.items() if len(values) > n})

    def leave_out(self, first: int, last: int) -> None:
        """Remove the NaN and infinite values of the iterations from ``first`` to ``last``.

        >>> buffer = LogBuffer()
        >>> for buffer.progress.completed, loss in enumerate([1.0, math.nan, 3.0]):
        ...     buffer.update({"loss": loss})
        >>> buffer.leave_out(1, 1)
        >>> buffer.val_history["loss"]
        [1.0, 3.0]
        """
        self._read({key: len(values) for key, values in self.val_history.items()})
        for key, iterations in self._iterations.items():
            values = self.val_history[key]
            where = range(bisect_left(iterations, first), bisect_right(iterations, last))
            for i in reversed([i for i in where if not math.isfinite(values[i])]):
                del values[i], self.n_history[key][i], iterations[i]

    def keep_window(self, n: int) -> None:
        """Remove the values older than ``window(n)``."""
        self._keep(self._lengths(n))

    def average(self, n: int = 0) -> None:
        """Average the last ``n`` values of each key, or all, into ``output``."""
        if n < 0:
            raise ValueError(f"n must be at least 0, got {shown(n)}")
        self.before_average()
        averages = self.means({key: n or len(v) for key, v in self.val_history.items()})
        self.output.write_averages(averages)
        self.ready = True
        if n:
            self.trim(max(n, MAX_HISTORY))

    def window(self, n: int) -> dict[str, float]:
        """Return the averages of all keys with values in the last ``n`` iterations.

        The current iteration counts as the last; between iterations, the next iteration. Values are
        removed as by ``average(n)``.

        >>> progress = SimpleNamespace(completed=0)
        >>> buffer = LogBuffer(progress)
        >>> for progress.completed in range(10):
        ...     buffer.update({"loss": progress.completed})
        ...     if progress.completed % 5 == 0:
        ...         buffer.update({"rare": progress.completed})
        >>> buffer.window(6), buffer.window(2)
        ({'loss': 6.5, 'rare': 5.0}, {'loss': 8.5})
        """
        self.before_average()
        averages = self.means(self._lengths(n))
        for name in self.loss_names & averages.keys():
            if "loss" in averages and _are_equal(averages[name], averages["loss"]):
                del averages[name]
        self.trim(max(n, MAX_HISTORY))
        return averages

    @contextlib.contextmanager
    def showing(self, line: Line) -> Iterator[None]:
        """Show the values of a line as the output, within the block."""
        before, was_ready = self.output, self.ready
        # what a Lightning Logger gets is no score for Lightning's callbacks
        news = None if line.is_given else self.news
        self.output, self.ready, self.line = Output(line.results, news=news), True, line
        self.output.write_averages(line.averages)
        try:
            yield
        finally:
            self.output, self.ready, self.line = before, was_ready, None
            if not line.is_given:
                self._logged = before.number

    # -- checkpoints -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers, for a checkpoint; other values are left out.

        Keys that follow one another and were always updated together are a group, with the steps
        there once.
        """
        self.before_average()
        self._read({key: len(values) for key, values in self.val_history.items()})
        numbers = {
            key: packed(values)
            for key, values in self.val_history.items()
            if all(issubclass(kind, Real) for kind in {*map(type, values)})
        }

        def shared(key: str) -> tuple[Any, list[int], list[int]]:
            return numbers[key].dtype, self.n_history.get(key, []), self._iterations.get(key, [])

        return {
            "groups": [
                {
                    "values": concatenated({key: numbers[key] for key in keys}),
                    "counts": packed(counts),
                    "iterations": packed(iterations),
                }
                # a line of the resumed run has the values in this order
                for (_, counts, iterations), keys in itertools.groupby(numbers, shared)
            ],
            "output": {k: float(v) for k, v in self.output.items() if isinstance(v, Real)},
            "averages": [key for key in self.output if key in self.output.averages],
            "loss_names": sorted(self.loss_names),
            "ready": self.ready,
        }

    def load_state_dict(self, state: Mapping[str, Any], shift: int = 0) -> None:
        """Replace all values and averages by a :meth:`state_dict`.

        Args:
            state: The numbers.
            shift: Added to the iterations of the values.
        """
        self.clear()
        for group in state["groups"]:
            for key, values in separated(group["values"]).items():
                self.names[key] = None
                self.val_history[key] = values.tolist()
                self.n_history[key] = group["counts"].tolist()
                self._iterations[key] = [i + shift for i in group["iterations"].tolist()]
        self.output.update(state["output"])
        self.loaded = self.output.number
        self.output.averages = {*state["averages"]} & self.output.keys()
        self.loss_names = frozenset(state.get("loss_names", ()))
        self.ready = state["ready"]

    # -- windows -----------------------------------------------------------------------------

    def _lengths(self, n: int) -> dict[str, int]:
        """Return how many of each key's last values belong to the last ``n`` iterations."""
        first = self.progress.completed + 1 - n
        iterations = {key: self._iterations.get(key, []) for key in self.val_history}
        return {key: len(its) - bisect_left(its, first) for key, its in iterations.items()}

    def means(self, lengths: Mapping[str, int]) -> dict[str, float]:
        """Return the averages of the last values.

        Args:
            lengths: The number of values by key; keys with 0 are left out.
        """
        self._read(lengths)
        return {
            key: _mean(self.val_history[key][-length:], self.n_history[key][-length:])
            for key, length in lengths.items()
            if length and self.n_history[key]
        }

    def _keep(self, lengths: Mapping[str, int]) -> None:
        """Remove all but the last values; a key of length 0 is removed."""
        for key, length in lengths.items():
            for history in self._histories.values():
                if length and key in history:
                    del history[key][:-length]
                else:
                    history.pop(key, None)

    def _read(self, lengths: Mapping[str, int]) -> None:
        """Replace tensors among the last values by numbers, with a single copy per device."""
        tails = {key: self.val_history[key][-length:] for key, length in lengths.items() if length}
        tails = {key: tail for key, tail in tails.items() if {*map(type, tail)} != {float}}
        tensors = [v for tail in tails.values() for v in tail if _is_tensor(v)]
        if tensors:
            numbers = iter(_numbers(tensors))
            for key, tail in tails.items():
                read = [next(numbers) if _is_tensor(value) else value for value in tail]
                self.val_history[key][-len(tail) :] = read


def _do_nothing() -> None: ...


def _is_tensor(value: Any) -> bool:
    return type(value) is not float and isinstance(value, torch.Tensor)


def _numbers(tensors: list[torch.Tensor]) -> list[float]:
    """Return the number, or the mean, of each tensor, with a single copy per device."""
    if len({tensor.dtype for tensor in tensors}) == 1:
        with contextlib.suppress(RuntimeError):  # of several devices or shapes
            stacked = torch.stack(tensors)
            if stacked.ndim == 1:  # nearly always
                return stacked.tolist()
    numbers = [0.0] * len(tensors)
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        here = [index for index, tensor in enumerate(tensors) if tensor.device == device]
        there = [tensors[index] for index in here]
        scalars = [t.reshape(()) if t.numel() == 1 else t.float().mean() for t in there]
        if len({scalar.dtype for scalar in scalars}) > 1:
            # a common dtype for the copy; float64 holds float32, bfloat16 and integers exactly
            wide = torch.float64 if device.type != "mps" else torch.float32
            scalars = [scalar.to(wide) for scalar in scalars]
        for index, number in zip(here, torch.stack(scalars).tolist(), strict=True):
            numbers[index] = number
    return numbers


def _are_equal(a: float, b: float) -> bool:
    """Whether two averages are of the same losses, up to the rounding of a division."""
    return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))


def _mean(values: list[Any], counts: list[int]) -> float:
    """Return mmcv's average, to the last bit."""
    # the usual case takes a third of the time; a weight of 1 changes nothing of a float
    if counts.count(1) == len(counts) and {*map(type, values)} == {float}:
        return float(np.add.reduce(values) / len(counts))  # np.sum's own way, without its checks
    weights = np.array(counts)
    return float(np.sum(np.array(values) * weights) / np.sum(weights))
