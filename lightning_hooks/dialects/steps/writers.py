"""Writers of an ``EventStorage``: to JSON lines, TensorBoard and the terminal.

A writer asks its dialect's ``get_event_storage()`` for the storage, whenever it writes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import time
from typing import Any

import torch

from lightning_hooks.dialects.steps.storage import EventStorage
from lightning_hooks.loggers.trackers.packages import require

__all__ = [
    "CommonMetricPrinter",
    "EventWriter",
    "JSONWriter",
    "TensorboardXWriter",
    "WholeJSONWriter",
    "of_window",
]


def of_window(window_size: Any) -> int:
    """Return a window's size, if it is one."""
    if not isinstance(window_size, int) or window_size < 1:
        raise ValueError(f"window_size must be an int of at least 1, got {window_size!r}")
    return window_size


class EventWriter:
    """Writes what a storage holds; subclasses have ``write``, and ``close`` if they need it."""

    def write(self) -> None:
        """Write what is new."""
        raise NotImplementedError(f"{type(self).__name__} must define write()")

    def close(self) -> None:
        """Free what is held."""

    def storage(self) -> EventStorage:
        """The storage of the run."""
        raise NotImplementedError(f"{type(self).__name__} must define storage()")


class _Lines(EventWriter):
    """Appends JSON objects to a file that is opened for the first of them."""

    def __init__(self, json_file: str, window_size: int = 20) -> None:
        self._path = os.fspath(json_file)
        self._window_size = of_window(window_size)
        self._last_write = -1
        self._file: Any = None

    def _append(self, row: dict[str, Any]) -> None:
        if self._file is None:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
            self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  # until close()
        self._file.write(json.dumps(row, sort_keys=True) + "\n")

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            with contextlib.suppress(OSError):  # a pipe
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; it is opened again if there is more."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


class JSONWriter(_Lines):
    """Appends the new scalars to a file, one JSON object for each iteration that has some.

    The keys are the scalars' names and ``iteration``, in the order of the alphabet. What should be
    smoothed is the median of its window.

    Args:
        json_file: The file.
        window_size: The window.
    """

    def write(self) -> None:
        """Write what is later than the last iteration written."""
        rows: dict[int, dict[str, Any]] = {}
        for name, (value, iteration) in self.storage().latest_values(self._window_size).items():
            if iteration > self._last_write:
                rows.setdefault(iteration, {})[name] = value
        for iteration, row in rows.items():
            self._append({**row, "iteration": iteration})
        self._last_write = max(rows, default=self._last_write)
        self._flush()


class WholeJSONWriter(_Lines):
    """Appends the last value of every scalar to a file, as one JSON object, whenever it writes.

    The keys are the scalars' names and ``iteration``, in the order of the alphabet. What should be
    smoothed is the median of its window.

    Args:
        json_file: The file.
        window_size: The window.
    """

    def write(self) -> None:
        """Write all of them, new or not."""
        storage = self.storage()
        latest = storage.latest_values(self._window_size)
        values = {name: value for name, (value, _) in latest.items()}
        self._append({"iteration": storage.iter, **values})
        self._flush()


class TensorboardXWriter(EventWriter):
    """Writes scalars, images and histograms for TensorBoard.

    Args:
        log_dir: The directory.
        window_size: The window of which the median is written, where a scalar should be smoothed.
        kwargs: Passed to ``SummaryWriter``.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    def __init__(self, log_dir: str, window_size: int = 20, **kwargs: Any) -> None:
        require("tensorboard", type(self).__name__)
        self._arguments = {"log_dir": os.fspath(log_dir), **kwargs}
        self._window_size = of_window(window_size)
        self._last_write = -1
        self._writer: Any = None

    def write(self) -> None:
        """Write what is new; images and histograms are then forgotten."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(**self._arguments)
        storage = self.storage()
        newest = self._last_write
        for name, (value, iteration) in storage.latest_values(self._window_size).items():
            if iteration > self._last_write:
                self._writer.add_scalar(name, value, iteration)
                newest = max(newest, iteration)
        self._last_write = newest
        for name, image, iteration in storage.vis_data:
            self._writer.add_image(name, image, iteration)
        storage.clear_images()
        for histogram in storage.histograms:
            self._writer.add_histogram_raw(**histogram)
        storage.clear_histograms()

    def close(self) -> None:
        """Close the file; another one is begun if there is more."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}


class CommonMetricPrinter(EventWriter):
    """Prints time to go, iteration, losses, times, learning rate and memory in one line.

    Args:
        max_iter: Iterations of the run, for the time to go; without it there is none.
        window_size: The window of which the losses' median is shown.
    """

    def __init__(self, max_iter: int | None = None, window_size: int = 20) -> None:
        self.logger = logging.getLogger("lightning_hooks")
        self._max_iter = max_iter
        self._window_size = of_window(window_size)
        self._last: tuple[int, float] | None = None  # iteration and time of the last line

    def write(self) -> None:
        """Print a line, unless the run is over."""
        storage = self.storage()
        if storage.iter != self._max_iter:
            self.logger.info(self.line(storage))

    def line(self, storage: EventStorage) -> str:
        """Return the line of now."""
        known = storage.histories()
        parts = []
        eta = self._seconds_to_go(storage)
        if eta is not None:
            parts.append(f"eta: {datetime.timedelta(seconds=int(eta))}")
        parts.append(f"iter: {storage.iter}")
        for name, history in known.items():
            if "loss" in name:
                window = storage.count_samples(name, self._window_size)
                parts.append(f"{name}: {history.median(window):.4g}")
        if "time" in known:
            parts.append(f"time: {known['time'].global_avg():.4f}")
        if "data_time" in known:
            parts.append(f"data_time: {known['data_time'].avg(20):.4f}")
        parts.append(f"lr: {known['lr'].latest():.5g}" if "lr" in known else "lr: N/A")
        if torch.cuda.is_available():
            parts.append(f"max_mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}M")
        return " " + "  ".join(parts)

    def _seconds_to_go(self, storage: EventStorage) -> float | None:
        if self._max_iter is None:
            return None
        to_go = self._max_iter - storage.iter - 1
        if "time" in storage.histories():
            seconds = storage.history("time").median(1000) * to_go
            storage.put_scalar("eta_seconds", seconds, smoothing_hint=False)
            return seconds
        last, self._last = self._last, (storage.iter, time.perf_counter())
        if last is None or storage.iter == last[0]:
            return None
        return (self._last[1] - last[1]) / (storage.iter - last[0]) * to_go
