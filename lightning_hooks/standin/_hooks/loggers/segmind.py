"""``SegmindLoggerHook``: log with the module ``segmind``, where there is one."""

from __future__ import annotations

import importlib
from typing import Any

from lightning_hooks.loggers import discontinued
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.standin.utils.dist import master_only

__all__ = ["SegmindLoggerHook"]


class SegmindLoggerHook(LoggerHook):
    """Logs with the functions of an importable module ``segmind``; the step is the epoch.

    Args:
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.

    Raises:
        ImportError: if there is no such module; Segmind no longer offers it.

    Source: mmcv's ``SegmindLoggerHook``, reproduced.
    """

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.import_segmind()

    def import_segmind(self) -> None:
        """Take the client's functions."""
        try:
            segmind = importlib.import_module("segmind")
        except ImportError as error:
            raise ImportError(discontinued.replacement(discontinued.SegmindLoggerHook)) from error
        self.log_metrics = segmind.tracking.fluent.log_metrics
        self.mlflow_log = segmind.utils.logging_utils.try_mlflow_log

    @master_only
    def log(self, runner: Any) -> None:
        """Log the values of the output."""
        if tags := self.get_loggable_tags(runner):
            self.mlflow_log(self.log_metrics, tags, step=runner.epoch, epoch=runner.epoch)
