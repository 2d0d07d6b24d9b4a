"""``CommonMetricPrinter``: detectron2's line for the terminal."""

from __future__ import annotations

import datetime

import torch

from lightning_hooks.dialects.steps import writers
from lightning_hooks.dialects.steps.storage import EventStorage

__all__ = ["CommonMetricPrinter"]


class CommonMetricPrinter(writers.CommonMetricPrinter):
    """Logs remaining time, iteration, losses, metrics, times, learning rate and memory in one line.

    A scalar whose name contains ``loss`` or ``[metric]`` is shown as the median of its window.

    Args:
        max_iter: Number of iterations of the run; without it no remaining time is shown.
        window_size: Number of iterations whose median is shown.
    """

    def line(self, storage: EventStorage) -> str:
        """Return the line for the present iteration, with detectron2's spaces."""
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

    def _medians(self, storage: EventStorage, part: str) -> str:
        return "  ".join(
            f"{name}: {history.median(storage.count_samples(name, self._window_size)):.4g}"
            for name, history in storage.histories().items()
            if part in name
        )
