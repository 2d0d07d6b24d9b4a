"""The scalars and images of a run and their writers, for detectron2, cvpods and Pet.

Each dialect has a subclass of ``EventStorage``, so that hooks of several dialects in a run have
separate storages. ``get_event_storage()`` of a dialect returns the run's storage from
``before_train`` until after ``after_train``. If the library itself is loaded, the storage is also
on the library's stack, for the library's hooks and writers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice, takewhile
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch

from lightning_hooks.dialects.background_writer import BackgroundWriter
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.loggers.trackers import visdom
from lightning_hooks.utils.arguments import check_int
from lightning_hooks.utils.packages import require
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "CommonMetricPrinter",
    "EventStorage",
    "EventWriter",
    "HistoryBuffer",
    "JSONWriter",
    "TensorboardXWriter",
    "VisdomWriter",
    "gives_iterations",
    "in_library",
    "last_of",
    "library_modules",
    "read_pending",
]


T = TypeVar("T")

_MAX_PENDING = 1000
"""Number of unread values, after which a buffer copies them from the device."""


@dataclasses.dataclass(slots=True)
class _Scalar:
    """A value of a series; a tensor on a device until it is read."""

    value: Any
    iteration: float


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
        self._data: deque[_Scalar] = deque(maxlen=max_length)
        self.unread: list[_Scalar] = []  # the oldest first
        self._count = 0
        self._global_avg = 0.0

    def update(self, value: Any, iteration: float | None = None) -> None:
        """Add a value.

        Args:
            value: Number, or tensor of one element.
            iteration: Iteration of the value; by default the number of earlier values.
        """
        scalar = _Scalar(_as_stored(value), self._count if iteration is None else iteration)
        self._data.append(scalar)
        self._count += 1
        self.unread.append(scalar)
        if len(self.unread) >= _MAX_PENDING:
            read_pending([self])

    def latest(self) -> float:
        """Return the last value."""
        return float(self._last(1)[0].value)

    def median(self, window_size: int) -> float:
        """Return the median of the last values."""
        return float(np.median([scalar.value for scalar in self._last(window_size)]))

    def avg(self, window_size: int) -> float:
        """Return the mean of the last values."""
        return float(np.mean([scalar.value for scalar in self._last(window_size)]))

    def global_avg(self) -> float:
        """Return the mean of all values, including dropped values."""
        read_pending([self])
        return self._global_avg

    def values(self) -> list[tuple[float, float]]:
        """Return the kept values with their iterations."""
        return [(scalar.value, scalar.iteration) for scalar in self._last(len(self._data))]

    def last_iteration(self) -> Any:
        """Return the iteration of the last value."""
        return self._data[-1].iteration

    def count_since(self, iteration: float) -> int:
        """Return the number of values after an iteration."""
        newer = takewhile(lambda scalar: scalar.iteration > iteration, reversed(self._data))
        return sum(1 for _ in newer)

    def _last(self, window_size: int) -> list[_Scalar]:
        """Return the last values, copied to the host, with their iterations."""
        read_pending([self])
        return last_of(self._data, window_size)

    def average_unread(self) -> None:
        """Add the values, copied by :func:`read_pending`, to the mean of all values."""
        for number, scalar in enumerate(self.unread, self._count - len(self.unread) + 1):
            self._global_avg += (scalar.value - self._global_avg) / number
        self.unread.clear()


def last_of(values: deque[T], number: int) -> list[T]:
    """Return the last values of a deque, the oldest first."""
    return [*islice(reversed(values), number)][::-1]


def read_pending(buffers: Iterable[HistoryBuffer]) -> None:
    """Copy the unread values of several buffers to the host, with one copy for each device."""
    buffers = [buffer for buffer in buffers if buffer.unread]
    by_device: dict[torch.device, list[_Scalar]] = {}
    for buffer in buffers:
        for scalar in buffer.unread:
            if isinstance(scalar.value, torch.Tensor):
                by_device.setdefault(scalar.value.device, []).append(scalar)
    for device, scalars in by_device.items():
        # float64 holds float32, bfloat16 and integers exactly
        wide = torch.float32 if device.type == "mps" else torch.float64
        values = [scalar.value.reshape(()).to(wide) for scalar in scalars]
        for scalar, number in zip(scalars, torch.stack(values).tolist(), strict=True):
            scalar.value = number
    for buffer in buffers:
        buffer.average_unread()


def _as_stored(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        if value.numel() != 1:
            raise ValueError(f"a scalar must have one element, got a tensor of shape {value.shape}")
        return value.detach().clone()  # hooks may change the tensor in place
    return float(value)


S = TypeVar("S", bound="EventStorage")

_STACK: ContextVar[tuple[EventStorage, ...]] = ContextVar("event storages", default=())
"""The entered storages, the innermost last."""


class EventStorage:
    """The histories of a run's scalars by name, and the run's images and histograms.

    Args:
        start_iter: Number of the first iteration.

    Note:
        Departures from detectron2: a tensor on a device is copied at the first reading. Another
        ``smoothing_hint`` for the same scalar raises ValueError. A histogram's ``num`` counts all
        values (in detectron2, the length of the tensor).
    """

    with_iterations = False
    """Whether ``latest()`` returns values with iterations."""
    may_write = True
    """Whether writers write files and to servers: not in ``Trainer(fast_dev_run=True)``."""

    def __init__(self, start_iter: int = 0) -> None:
        self._iter = start_iter
        self._history: dict[str, HistoryBuffer] = {}
        self._smoothing_hints: dict[str, bool] = {}
        self._current_prefix = ""
        self._vis_data: list[tuple[str, Any, int]] = []
        self._histograms: list[dict[str, Any]] = []

    # -- writing ---------------------------------------------------------------------------

    def put_scalar(
        self, name: str, value: Any, smoothing_hint: bool = True, cur_iter: int | None = None
    ) -> None:
        """Add a value to a scalar's history.

        Args:
            name: Name of the scalar.
            value: Number, or tensor of one element.
            smoothing_hint: Whether writers smooth the scalar; the same for all values.
            cur_iter: Iteration of the value; the current iteration by default.
        """
        name = self._current_prefix + name
        if self._smoothing_hints.setdefault(name, smoothing_hint) != smoothing_hint:
            raise ValueError(
                f"the scalar {name!r} was put with smoothing_hint={not smoothing_hint}, "
                f"now with {smoothing_hint}"
            )
        if name not in self._history:
            self._history[name] = HistoryBuffer()
        self._history[name].update(value, self._iter if cur_iter is None else cur_iter)

    def put_scalars(
        self, *, smoothing_hint: bool = True, cur_iter: int | None = None, **scalars: Any
    ) -> None:
        """Add a value to each of several scalars."""
        for name, value in scalars.items():
            self.put_scalar(name, value, smoothing_hint=smoothing_hint, cur_iter=cur_iter)

    def feed(self, scalars: Mapping[str, Any]) -> None:
        """Add values to several scalars with their present smoothing hints."""
        for name, value in scalars.items():
            hint = self._smoothing_hints.get(self._current_prefix + name, True)
            self.put_scalar(name, value, hint)

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Store an image (channels, height, width) for writers of images."""
        self._vis_data.append((img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: torch.Tensor, bins: int = 1000) -> None:
        """Store a tensor's histogram for writers of histograms."""
        values = hist_tensor.detach().float().flatten()
        low, high = values.min().item(), values.max().item()
        self._histograms.append(
            {
                "tag": hist_name,
                "min": low,
                "max": high,
                "num": values.numel(),
                "sum": values.sum().item(),
                "sum_squares": values.square().sum().item(),
                "bucket_limits": torch.linspace(low, high, bins + 1)[1:].tolist(),
                "bucket_counts": torch.histc(values, bins=bins).tolist(),
                "global_step": self._iter,
            }
        )

    @contextlib.contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Prefix the names of scalars added in the block with ``name/``."""
        with setting(self, _current_prefix=name.rstrip("/") + "/"):
            yield

    # -- reading ---------------------------------------------------------------------------

    def history(self, name: str) -> HistoryBuffer:
        """Return the history of a scalar.

        Raises:
            KeyError: for an unknown scalar, with the closest name.
        """
        if name not in self._history:
            raise KeyError(f"no scalar {name!r} has been put; {suggest(name, self._history)}")
        return self._history[name]

    def histories(self) -> dict[str, HistoryBuffer]:
        """Return the histories of all scalars by name."""
        return self._history

    def smoothing_hints(self) -> dict[str, bool]:
        """Return the smoothing hints by name."""
        return self._smoothing_hints

    def latest_values(self, window_size: int | None = None) -> dict[str, tuple[float, Any]]:
        """Return the last value and iteration of every scalar.

        Args:
            window_size: Number of last values; their median replaces the last value of a scalar
                with a smoothing hint. None for no smoothing.
        """
        read_pending(self._history.values())  # one copy from the device for all scalars
        return {
            name: (
                history.median(self.count_samples(name, window_size))
                if window_size is not None and self._smoothing_hints[name]
                else history.latest(),
                history.last_iteration(),
            )
            for name, history in self._history.items()
        }

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of a scalar's values in a window."""
        return window_size

    def latest(self) -> dict[str, Any]:
        """Return the last value of every scalar, with its iteration in some dialects."""
        return self._shown(self.latest_values())

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, Any]:
        """Return ``latest()``, with the median of a window for scalars with a smoothing hint."""
        return self._shown(self.latest_values(window_size))

    def _shown(self, latest: dict[str, tuple[float, Any]]) -> dict[str, Any]:
        return latest if self.with_iterations else {k: value for k, (value, _) in latest.items()}

    vis_data = property(attrgetter("_vis_data"))
    """The unwritten images: name, image, iteration."""
    histograms = property(attrgetter("_histograms"))
    """The unwritten histograms: arguments of ``add_histogram_raw``."""

    def clear_images(self) -> None:
        """Remove the images; writers call this after writing."""
        self._vis_data = []

    def clear_histograms(self) -> None:
        """Remove the histograms; writers call this after writing."""
        self._histograms = []

    # -- the current iteration -------------------------------------------------------------

    @property
    def iter(self) -> int:
        """The current iteration."""
        return self._iter

    @iter.setter
    def iter(self, value: int) -> None:
        self._iter = int(value)

    iteration = property(attrgetter("_iter"))
    """The current iteration."""

    def step(self) -> None:
        """Go on to the next iteration."""
        self._iter += 1

    # -- the stack of storages -------------------------------------------------------------

    def __enter__(self: S) -> S:
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        stack = _STACK.get()
        # the runs of several dialects end in any order
        last = max((i for i, storage in enumerate(stack) if storage is self), default=len(stack))
        _STACK.set(stack[:last] + stack[last + 1 :])

    def bring_forward(self) -> None:
        """Make this storage the innermost if the innermost belongs to another dialect."""
        stack = _STACK.get()
        if stack and not isinstance(stack[-1], type(self)) and self in stack:
            _STACK.set((*(storage for storage in stack if storage is not self), self))

    @classmethod
    def is_entered(cls) -> bool:
        """Return whether a storage of this class is entered."""
        return any(isinstance(storage, cls) for storage in _STACK.get())

    @classmethod
    def innermost(cls: type[S]) -> S:
        """Return the innermost storage of this class, of the run or ``with`` block.

        Raises:
            AssertionError: outside of a run and of a ``with`` block, as in detectron2.
        """
        for storage in reversed(_STACK.get()):
            if isinstance(storage, cls):
                return storage
        raise AssertionError(
            "get_event_storage() works inside `with EventStorage(...)`, and in a Trainer whose "
            "HookAdapter hosts hooks of the dialect, from before_train to after_train"
        )


# -- the stack of a loaded library ----------------------------------------------------------

_LIBRARY_STACK = "_CURRENT_STORAGE_STACK"
"""Name of the stack in modules of detectron2, cvpods and Pet, and in copies of these modules."""


@contextlib.contextmanager
def in_library(storage: Any, modules: Iterable[ModuleType]) -> Iterator[None]:
    """Make a storage the current storage of a loaded library, in the block."""
    stacks = [vars(module)[_LIBRARY_STACK] for module in modules]
    for stack in stacks:
        stack.append(storage)
    try:
        yield
    finally:
        for stack in stacks:
            stack[:] = [other for other in stack if other is not storage]


def library_modules(packages: Iterable[str], objects: Iterable[Any]) -> list[ModuleType]:
    """Return the loaded modules of a library that have a stack of storages.

    Args:
        packages: Names of the library's packages.
        objects: Hooks. The packages of their classes and of their writers are searched too, since
            projects have copies of the library.
    """
    given = list(objects)
    for hook in [*given]:
        writers = getattr(hook, "_writers", getattr(hook, "writers", None))  # Pet: without _
        given += writers if isinstance(writers, (list, tuple)) else ()
    classes = {base for entry in given for base in type(entry).__mro__}
    roots = {*packages, *(cls.__module__.partition(".")[0] for cls in classes)}
    roots -= {"builtins", "lightning_hooks"}
    modules: dict[int, ModuleType] = {}
    for name, module in sys.modules.copy().items():  # other threads may import
        stack = vars(module).get(_LIBRARY_STACK) if name.partition(".")[0] in roots else None
        # several modules may share a stack: prefer the module of EventStorage
        if isinstance(stack, list) and (id(stack) not in modules or "EventStorage" in vars(module)):
            modules[id(stack)] = module
    return list(modules.values())


def gives_iterations(module: ModuleType) -> bool:
    """Return whether a module's ``EventStorage.latest()`` returns values with iterations."""
    if "EventStorage" not in vars(module):
        return False
    storage = vars(module)["EventStorage"](0)
    storage.put_scalar("value", 0.0)
    return isinstance(storage.latest()["value"], tuple)


Scalar = tuple[str, float, int]
"""A scalar's name, value and iteration."""


class EventWriter:
    """The base of writers: subclasses define ``write``, and ``close`` to release resources."""

    def write(self, **epochs: Any) -> None:
        """Write the new values.

        Args:
            epochs: ``epoch`` and ``max_epoch``, from Pet in a run counted in epochs; ignored here.
        """
        raise NotImplementedError(f"{type(self).__name__} must define write()")

    def close(self) -> None:
        """Release files and connections."""

    def storage(self) -> EventStorage:
        """Return the storage of the run."""
        return EventStorage.innermost()


class _WindowWriter(EventWriter):
    """Reads scalars from the storage, smoothed over a window."""

    def __init__(self, window_size: int) -> None:
        check_int("window_size", window_size, 1)
        self._window_size = window_size
        self._last_iteration = -1
        self._writer: Any = None  # the file, opened by the first write

    def close(self) -> None:
        """Close the file; a later write, as in a further run, opens a file again."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._last_iteration = None, -1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}

    def _new_scalars(self) -> list[Scalar]:
        """Return the scalars of iterations after the last call."""
        latest = self.storage().latest_values(self._window_size)
        new = [(name, *entry) for name, entry in latest.items() if entry[1] > self._last_iteration]
        self._last_iteration = max((entry[2] for entry in new), default=self._last_iteration)
        return new


def _by_iteration(scalars: Iterable[Scalar]) -> dict[int, dict[str, float]]:
    """Group scalars by their iterations."""
    rows: dict[int, dict[str, float]] = {}
    for name, value, iteration in scalars:
        rows.setdefault(iteration, {})[name] = value
    return rows


class JSONWriter(_WindowWriter):
    """Appends scalars to a file, as JSON objects with the names and ``iteration`` as sorted keys.

    ==================================  ==========================================================
    ``latest()`` of the storage gives   a write appends
    ==================================  ==========================================================
    values with iterations              the new scalars, an object for each iteration
    (detectron2, ``cvpods_master``)
    values (``cvpods``, Pet)            the last value of every scalar, new or not, as one object
    ==================================  ==========================================================

    A scalar with a smoothing hint is written as the median of a window.

    Args:
        json_file: Path of the file; opened by the first write.
        window_size: Number of values in the window.
    """

    _first_iteration = 0

    def __init__(self, json_file: str, window_size: int = 20) -> None:
        super().__init__(window_size)
        self._path = os.fspath(json_file)

    def write(self, **epochs: Any) -> None:
        """Append the scalars."""
        storage = self.storage()
        if not storage.may_write:
            return
        if storage.with_iterations:
            rows = _by_iteration(self._new_scalars())
            self._append({**row, "iteration": iteration} for iteration, row in rows.items())
        else:
            latest = storage.latest_values(self._window_size)
            values = {name: value for name, (value, _) in latest.items()}
            self._append([{"iteration": storage.iter + self._first_iteration, **values}])

    def _append(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            if self._writer is None:
                os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
                self._writer = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  # see close()
            self._writer.write(json.dumps(row, sort_keys=True) + "\n")
        if self._writer is not None:
            self._writer.flush()
            with contextlib.suppress(OSError):  # pipes cannot be synced
                os.fsync(self._writer.fileno())


class TensorboardXWriter(_WindowWriter):
    """Writes scalars, images and histograms for TensorBoard.

    Args:
        log_dir: Directory of the event files.
        window_size: Number of values in the median of a scalar with a smoothing hint.
        kwargs: Arguments of ``SummaryWriter``.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    def __init__(self, log_dir: str, window_size: int = 20, **kwargs: Any) -> None:
        require("tensorboard", type(self).__name__)
        super().__init__(window_size)
        self._arguments = {"log_dir": os.fspath(log_dir), **kwargs}

    def write(self, **epochs: Any) -> None:
        """Write the new scalars, the images and the histograms."""
        storage = self.storage()
        if not storage.may_write:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(**self._arguments)
        for name, value, iteration in self._new_scalars():
            self._writer.add_scalar(name, value, iteration)
        for name, image, iteration in storage.vis_data:
            self._writer.add_image(name, image, iteration)
        storage.clear_images()
        for histogram in storage.histograms:
            self._writer.add_histogram_raw(**histogram)
        storage.clear_histograms()


class VisdomWriter(_WindowWriter):
    """Draws every scalar as a line in a Visdom window of the scalar's name, and shows images.

    If the server cannot be reached, or fails later, one warning is logged and training goes on.

    Args:
        window_size: Number of values in the median of a scalar with a smoothing hint.
        env: Name of the Visdom environment.
        kwargs: Arguments of ``visdom.Visdom``: ``server``, ``port``; or ``offline=True`` with
            ``log_to_filename``, for a file to be sent by ``Visdom().replay_log()``.

    Raises:
        ImportError: if visdom is not installed.
    """

    def __init__(self, window_size: int = 20, env: str = "main", **kwargs: Any) -> None:
        super().__init__(window_size)
        init = {"env": env, "use_incoming_socket": False, "raise_exceptions": True, **kwargs}
        self._page = BackgroundWriter(visdom.VisdomWriter, type(self).__name__, init=init)

    def write(self, **epochs: Any) -> None:
        """Draw the new scalars and show the images."""
        storage = self.storage()
        if not storage.may_write:
            return
        for iteration, row in sorted(_by_iteration(self._new_scalars()).items()):
            self._page.send(iteration, scalars=row)
        for name, image, iteration in storage.vis_data:
            self._page.send_image(iteration, name, image)
        storage.clear_images()

    def close(self) -> None:
        """Wait until all values are drawn."""
        super().close()
        self._page.close()


class CommonMetricPrinter(_WindowWriter):
    """Logs remaining time, iteration, losses, times, learning rate and memory in one line.

    Args:
        max_iter: Number of iterations of the run; without ``max_iter`` no remaining time is shown.
        window_size: Number of values in the median of a loss.
    """

    def __init__(self, max_iter: int | None = None, window_size: int = 20) -> None:
        super().__init__(window_size)
        self.logger = logging.getLogger("lightning_hooks")
        self._max_iter = max_iter
        self._last_write: tuple[int, float] | None = None  # iteration and time of the last line

    def write(self, **epochs: Any) -> None:
        """Log a line, unless the run has ended."""
        storage = self.storage()
        if storage.iter != self._max_iter:
            self.logger.info(self.line(storage))

    def line(self, storage: EventStorage) -> str:
        """Return the line of the current iteration."""
        parts = [*self._eta(storage), f"iter: {storage.iter}", *self._medians(storage, "loss")]
        parts += [f"{name}: {mean:.4f}" for name, mean, _ in self._times(storage, 20)]
        return " " + "  ".join([*parts, self._rate(storage), *self._memory()])

    def _eta(self, storage: EventStorage) -> list[str]:
        seconds = self._remaining_seconds(storage)
        return [] if seconds is None else [f"eta: {datetime.timedelta(seconds=int(seconds))}"]

    def _times(self, storage: EventStorage, window: int) -> Iterator[tuple[str, float, float]]:
        """Yield the name, the mean and the last value of ``time`` and ``data_time``, if put."""
        histories = storage.histories()
        if "time" in histories:
            yield "time", histories["time"].global_avg(), histories["time"].latest()
        if "data_time" in histories:
            history, count = histories["data_time"], storage.count_samples("data_time", window)
            yield "data_time", history.avg(count), history.latest()

    def _rate(self, storage: EventStorage) -> str:
        rate = storage.histories().get("lr")
        return "lr: N/A" if rate is None else f"lr: {rate.latest():.5g}"

    def _memory(self) -> list[str]:
        if not torch.cuda.is_available():
            return []
        return [f"max_mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}M"]

    def _medians(self, storage: EventStorage, part: str) -> list[str]:
        return [
            f"{name}: {history.median(storage.count_samples(name, self._window_size)):.4g}"
            for name, history in storage.histories().items()
            if part in name
        ]

    def _remaining_seconds(self, storage: EventStorage) -> float | None:
        if self._max_iter is None:
            return None
        iterations = self._max_iter - storage.iter - 1
        if "time" in storage.histories():
            seconds = storage.history("time").median(1000) * iterations
            storage.put_scalar("eta_seconds", seconds, smoothing_hint=False)
            return seconds
        last, self._last_write = self._last_write, (storage.iter, time.perf_counter())
        if last is None or storage.iter <= last[0]:  # of an earlier run
            return None
        return (self._last_write[1] - last[1]) / (storage.iter - last[0]) * iterations
