"""Writers of an ``EventStorage``: JSON lines, TensorBoard, Visdom and the terminal.

Shared by detectron2, cvpods and Pet. A writer reads the innermost storage.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

import torch

from lightning_hooks.dialects.backend import Backend
from lightning_hooks.dialects.steps.storage import EventStorage
from lightning_hooks.loggers.trackers import visdom
from lightning_hooks.loggers.trackers.packages import require
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "CommonMetricPrinter",
    "EventWriter",
    "JSONWriter",
    "SnapshotJSONWriter",
    "TensorboardXWriter",
    "VisdomWriter",
]

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
    """Appends the new scalars to a file, one JSON object for each iteration with a scalar.

    The keys are the scalars' names and ``iteration``, sorted. A scalar with a smoothing hint is
    written as the median of a window.

    Args:
        json_file: Path of the file; opened by the first write.
        window_size: Number of values in the window.
    """

    def __init__(self, json_file: str, window_size: int = 20) -> None:
        super().__init__(window_size)
        self._path = os.fspath(json_file)
        self._file: Any = None

    def write(self, **epochs: Any) -> None:
        """Append the scalars after the last written iteration."""
        rows = _by_iteration(self._new_scalars())
        self._append({**row, "iteration": iteration} for iteration, row in rows.items())

    def _append(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            if self._file is None:
                os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
                self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  # see close()
            self._file.write(json.dumps(row, sort_keys=True) + "\n")
        if self._file is not None:
            self._file.flush()
            with contextlib.suppress(OSError):  # pipes cannot be synced
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a later write opens the file again."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


class SnapshotJSONWriter(JSONWriter):
    """Appends the last value of every scalar to a file, as one JSON object for each write.

    The keys are the scalars' names and ``iteration``, sorted. A scalar with a smoothing hint is
    written as the median of a window.

    Args:
        json_file: Path of the file; opened by the first write.
        window_size: Number of values in the window.
    """

    _first_iteration = 0

    def write(self, **epochs: Any) -> None:
        """Append all scalars, new or not."""
        storage = self.storage()
        latest = storage.latest_values(self._window_size)
        values = {name: value for name, (value, _) in latest.items()}
        self._append([{"iteration": storage.iter + self._first_iteration, **values}])


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
        self._writer: Any = None

    def write(self, **epochs: Any) -> None:
        """Write the new scalars, the images and the histograms."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(**self._arguments)
        for name, value, iteration in self._new_scalars():
            self._writer.add_scalar(name, value, iteration)
        storage = self.storage()
        for name, image, iteration in storage.vis_data:
            self._writer.add_image(name, image, iteration)
        storage.clear_images()
        for histogram in storage.histograms:
            self._writer.add_histogram_raw(**histogram)
        storage.clear_histograms()

    def close(self) -> None:
        """Close the event file; a later write starts another file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}


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
        self._page = Backend(visdom.VisdomWriter, type(self).__name__, init=init)

    def write(self, **epochs: Any) -> None:
        """Draw the new scalars and show the images."""
        for iteration, row in sorted(_by_iteration(self._new_scalars()).items()):
            self._page.send(iteration, scalars=row)
        storage = self.storage()
        for name, image, iteration in storage.vis_data:
            self._page.send(iteration, images={name: image})
        storage.clear_images()

    def close(self) -> None:
        """Wait until all values are drawn."""
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
        histories = storage.histories()
        parts = []
        eta = self._remaining_seconds(storage)
        if eta is not None:
            parts.append(f"eta: {datetime.timedelta(seconds=int(eta))}")
        parts.append(f"iter: {storage.iter}")
        for name, history in histories.items():
            if "loss" in name:
                window = storage.count_samples(name, self._window_size)
                parts.append(f"{name}: {history.median(window):.4g}")
        if "time" in histories:
            parts.append(f"time: {histories['time'].global_avg():.4f}")
        if "data_time" in histories:
            parts.append(f"data_time: {histories['data_time'].avg(20):.4f}")
        parts.append(f"lr: {histories['lr'].latest():.5g}" if "lr" in histories else "lr: N/A")
        if torch.cuda.is_available():
            parts.append(f"max_mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}M")
        return " " + "  ".join(parts)

    def _remaining_seconds(self, storage: EventStorage) -> float | None:
        if self._max_iter is None:
            return None
        iterations = self._max_iter - storage.iter - 1
        if "time" in storage.histories():
            seconds = storage.history("time").median(1000) * iterations
            storage.put_scalar("eta_seconds", seconds, smoothing_hint=False)
            return seconds
        last, self._last_write = self._last_write, (storage.iter, time.perf_counter())
        if last is None or storage.iter == last[0]:
            return None
        return (self._last_write[1] - last[1]) / (storage.iter - last[0]) * iterations
