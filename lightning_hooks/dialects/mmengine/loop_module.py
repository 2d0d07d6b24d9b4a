"""``LoopModule``: the LightningModule whose steps are those of mmengine's loops."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks.dialects.facade import scalars_of
from lightning_hooks.dialects.mmengine.phases import Epochs, Evaluation, Iterations
from lightning_hooks.engine.lightning_api import progress

__all__ = ["LoopModule"]


class LoopModule(L.LightningModule):
    """The LightningModule of a runner: its steps are those of mmengine's loops.

    Args:
        model: The model that is trained.
        training: The training; None in a validation or test by itself.
    """

    def __init__(self, model: torch.nn.Module, training: Epochs | Iterations | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False  # the optimizer wrapper does backward and step
        self.model = model
        self._training = training
        self.evaluation: Evaluation | None = None
        self.all_optimizers: list[torch.optim.Optimizer] = []
        self.outputs: Any = None
        """The result of the training step, as hooks saw it."""

    @property
    def _loops(self) -> Epochs | Iterations:
        assert self._training is not None
        return self._training

    def configure_optimizers(self) -> Any:
        """Return the optimizers inside mmengine's wrappers."""
        return self.all_optimizers

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Leave the batch to the model's data preprocessor."""
        return batch

    def on_train_start(self) -> None:
        """Count on in a resumed run."""
        loop = self._loops.loop
        progress.set_batches(self.trainer, loop.iter)
        if isinstance(self._loops, Epochs):
            progress.set_epoch(self.trainer, loop.epoch)

    def on_train_epoch_start(self) -> None:
        """Begin the epoch of mmengine's loop."""
        self._loops.begin_epoch(self.trainer)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Run an iteration of mmengine's loop; log its numbers for Lightning's callbacks."""
        self._loops.run_iter(batch, batch_idx)
        if isinstance(self.outputs, dict):
            self.log_dict(scalars_of(self.outputs), batch_size=1)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the iteration."""
        self._loops.end_batch(self.trainer)

    def on_train_epoch_end(self) -> None:
        """End the epoch of mmengine's loop."""
        self._loops.end_epoch(self.trainer)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Run an iteration of mmengine's validation or test."""
        assert self.evaluation is not None
        self.evaluation.loop.run_iter(batch_idx, batch)

    def on_validation_epoch_end(self) -> None:
        """Evaluate; log the numbers for Lightning's callbacks."""
        assert self.evaluation is not None
        self.log_dict(scalars_of(self.evaluation.finish()), batch_size=1)

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end
