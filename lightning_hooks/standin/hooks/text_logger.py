"""``TextLoggerHook`` under the stand-in's runners: the JSON has mmcv's five decimals."""

from __future__ import annotations

from typing import Any

from lightning_hooks.loggers import text
from lightning_hooks.standin.hooks.checkpoint import writes_mmcv_files

__all__ = ["TextLoggerHook"]


class TextLoggerHook(text.TextLoggerHook):
    """The stand-in's TextLoggerHook.

    In a Trainer, without a runner of the stand-in's, it is :class:`lightning_hooks.TextLoggerHook`,
    where the arguments are described.

    Source: mmcv's ``TextLoggerHook``; NaN and infinity stay ``null`` in the JSON.
    """

    def writes_lines(self, runner: Any) -> bool:
        """Whether the lines go to a file of their own: in mmcv the script's logger does that."""
        return not writes_mmcv_files(runner) and super().writes_lines(runner)

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1; before any, of a validation, 0."""
        if writes_mmcv_files(runner) and runner.mode == "val":
            return int(runner.epoch)
        return super().get_epoch(runner)

    def _dump_log(self, log_dict: dict[str, Any], runner: Any) -> None:
        if writes_mmcv_files(runner):
            log_dict = {key: self._round_float(value) for key, value in log_dict.items()}
        super()._dump_log(log_dict, runner)

    def _round_float(self, items: Any) -> Any:
        """Round what goes into the JSON."""
        if isinstance(items, list):
            return [self._round_float(item) for item in items]
        return round(items, 5) if isinstance(items, float) else items
