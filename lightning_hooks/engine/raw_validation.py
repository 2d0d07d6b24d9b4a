"""``RawValidation``: the scores of the raw weights beside the average's."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import logged_values, validation
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.runner import metrics
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.engine.runner.model_wrapper import log_vars_of

__all__ = ["RawValidation", "validates_raw"]


class RawValidation(Callback):
    """Repeats each validation of a fit with the raw weights, and logs the values as ``raw/...``.

    The values are in the Trainer's loggers, in a line of the hooks' loggers after the validation's,
    and until the next validation in ``trainer.callback_metrics``: callbacks that read there in a
    validation never find the values of an earlier one.

    Args:
        trainer: The Trainer, in the ``setup`` of a fit.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._driver = driver = Driver.of(trainer)
        driver.fit.callback(setattr, driver, "after_raw_scores", None)
        prefix = logged_values.RAW
        validation.SecondValidation(trainer, driver.fit, prefix, self, self._begin, self._finish)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the values of a validation."""
        self._buffer = LogBuffer()

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Collect the ``log_vars`` of a step."""
        values = log_vars_of(outputs) if isinstance(outputs, dict) else None
        if values is not None:
            self._buffer.update(values, outputs.get("num_samples", 1))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Collect the module's logged values."""
        self._buffer.update(validation.val_metrics(trainer))

    def _begin(self) -> None:
        self._driver.runner.callback_values.withdraw_raw()
        self._driver.after_raw_scores = []

    def _finish(self, values: dict[str, torch.Tensor]) -> None:
        self._buffer.average()
        lines = {f"{logged_values.RAW}{name}": v for name, v in self._buffer.output.items()}
        self._driver.runner.callback_values.publish({**lines, **values})
        metrics.log_values(self._driver.runner, "val", lines)
        calls, self._driver.after_raw_scores = self._driver.after_raw_scores, None
        for call in calls or ():
            call()


def validates_raw(trainer: L.Trainer) -> bool:
    """Whether the raw weights are being validated, after the average."""
    return any(isinstance(callback, RawValidation) for callback in callbacks_of(trainer))
