"""detectron2's ``EventStorage`` and terminal line, as in ``detectron2.utils.events``."""

from __future__ import annotations

import datetime

import torch

from lightning_hooks.dialects.steps import storage as steps
from lightning_hooks.dialects.steps import writers

__all__ = ["CommonMetricPrinter", "EventStorage", "get_event_storage", "has_event_storage"]


class EventStorage(steps.EventStorage):
    """The scalars, images and histograms of a run; readings return values with iterations."""

    def latest(self) -> dict[str, tuple[float, int]]:
        """Return the last value of every scalar, with its iteration."""
        return self.latest_values()

    @property
    def _latest_scalars(self) -> dict[str, tuple[float, int]]:
        """``latest()`` under a private name of detectron2, read by projects."""
        return self.latest_values()

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """Return ``latest()``, with the median of a window for scalars with a smoothing hint."""
        return self.latest_values(window_size)

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of values in the last ``window_size`` iterations of a scalar."""
        history = self.history(name)
        return history.count_since(history.last_iteration() - window_size)


get_event_storage = EventStorage.innermost


def has_event_storage() -> bool:
    """Return whether ``get_event_storage()`` can return a storage."""
    return EventStorage.is_entered()


class CommonMetricPrinter(writers.CommonMetricPrinter):
    """Logs remaining time, iteration, losses, metrics, times, learning rate and memory in one line.

    A scalar with ``loss`` or ``[metric]`` in the name is shown as the median of a window.

    Args:
        max_iter: Number of iterations of the run; without ``max_iter`` no remaining time is shown.
        window_size: Number of iterations in the window.
    """

    def line(self, storage: steps.EventStorage) -> str:
        """Return the line of the current iteration, with detectron2's spaces."""
        eta = self._remaining_seconds(storage)
        start = "" if eta is None else f"eta: {datetime.timedelta(seconds=int(eta))}  "
        losses, metrics = self._medians(storage, "loss"), self._medians(storage, "[metric]")
        histories = storage.histories()
        times = data_times = ""
        if "time" in histories:
            time = histories["time"]
            times = f"time: {time.global_avg():.4f}  last_time: {time.latest():.4f}  "
        if "data_time" in histories:
            time = histories["data_time"]
            mean = time.avg(storage.count_samples("data_time", self._window_size))
            data_times = f"data_time: {mean:.4f}  last_data_time: {time.latest():.4f}  "
        lr = f"{histories['lr'].latest():.5g}" if "lr" in histories else "N/A"
        memory = ""
        if torch.cuda.is_available():
            memory = f"max_mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}M"
        return (
            f" {start}iter: {storage.iter}  {losses}  {metrics}  {times}{data_times} "
            f"lr: {lr}  {memory}"
        )

    def _medians(self, storage: steps.EventStorage, part: str) -> str:
        return "  ".join(
            f"{name}: {history.median(storage.count_samples(name, self._window_size)):.4g}"
            for name, history in storage.histories().items()
            if part in name
        )
