"""``TextLoggerHook`` under the stand-in's runners: the JSON has mmcv's five decimals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.loggers import text
from lightning_hooks.loggers.text_format import json_line
from lightning_hooks.standin._hooks.checkpoint import writes_mmcv_files

__all__ = ["TextLoggerHook"]


class TextLoggerHook(text.TextLoggerHook):
    """A TextLoggerHook that rounds its JSON as mmcv does, under the stand-in's runners.

    In a Trainer it behaves as :class:`lightning_hooks.TextLoggerHook`, which describes the
    arguments.

    Source: mmcv's ``TextLoggerHook``; NaN and infinity stay ``null`` in the JSON.
    """

    def writes_lines(self, runner: Any) -> bool:
        """Return whether lines go to a log file; in mmcv the script's logger writes it."""
        return not writes_mmcv_files(runner) and super().writes_lines(runner)

    def get_mode(self, runner: Any) -> str:
        """Return the mode; of a line without values it is that of a validation, as in mmcv."""
        if writes_mmcv_files(runner) and runner.mode == "train" and not runner.log_buffer.output:
            return "val"
        return super().get_mode(runner)

    def get_epoch(self, runner: Any) -> int:
        """Return the number of the epoch, from 1; 0 for a validation before the first."""
        if writes_mmcv_files(runner) and runner.mode == "val":
            return int(runner.epoch)
        return super().get_epoch(runner)

    def _has_meta(self, runner: Any) -> bool:
        return bool(runner.meta) if writes_mmcv_files(runner) else super()._has_meta(runner)

    def _json_line(self, record: Mapping[str, Any], runner: Any) -> str:
        if not writes_mmcv_files(runner):
            return super()._json_line(record, runner)
        # before the conversion to plain types, so that those of numpy are not rounded
        rounded = {key: self._round_float(value) for key, value in record.items()}
        return json_line(rounded, rounding=lambda value: value)

    def _round_float(self, items: Any) -> Any:
        """Return values rounded for the JSON."""
        if isinstance(items, list):
            return [self._round_float(item) for item in items]
        return round(items, 5) if isinstance(items, float) else items
