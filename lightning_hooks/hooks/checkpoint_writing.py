"""When and how a native hook writes a checkpoint: where a resume from it loses nothing."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import lightning as L

from lightning_hooks import loops
from lightning_hooks.checkpoint_io import writes_atomically
from lightning_hooks.driver import Driver
from lightning_hooks.epoch_runner import EpochRunner
from lightning_hooks.hook import Hook
from lightning_hooks.listening import listens

__all__ = ["CheckpointWriter", "write_checkpoint"]


def write_checkpoint(trainer: L.Trainer, path: str, *, save_optimizer: bool = True) -> None:
    """Write a checkpoint of Lightning's with mmcv's ``meta``, on all ranks together.

    Args:
        trainer: The Trainer, in a fit.
        path: Where to, local or fsspec's.
        save_optimizer: Whether a run can be resumed from the file.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(writes_atomically(trainer.strategy))
        if not save_optimizer:  # Lightning then leaves callbacks out, and so mmcv's meta
            module = trainer.lightning_module
            add = partial(Driver.of(trainer).on_save_checkpoint, trainer, module)
            stack.enter_context(listens(module, "on_save_checkpoint", add))
        trainer.save_checkpoint(path, weights_only=not save_optimizer)


class CheckpointWriter(Hook):
    """A hook that decides at mmcv's points what is due, and writes it when that is safe.

    By epoch that is at the end of Lightning's epoch, after its validation; by iteration at the
    end of the batch, or of the validation that follows the batch, and where the batch is the
    last of its epoch at the end of the epoch.
    """

    by_epoch: bool = True
    _due: Any = None
    """What is to be written, None for nothing; ``_write`` takes it."""

    def _write(self, trainer: L.Trainer) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _write(trainer)")

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write, if nothing belongs to the iteration any more."""
        if self._due is None or loops.validates_next(trainer):
            return
        runner = Driver.of(trainer).runner
        # where epochs are counted; elsewhere Lightning resumes from the batch, not from the epoch
        if not (isinstance(runner, EpochRunner) and loops.is_last_batch(trainer)):
            self._write(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what is due by iteration, unless the epoch is about to end."""
        if self._due is not None and not self.by_epoch:
            epochs = isinstance(Driver.of(trainer).runner, EpochRunner)
            if not (epochs and loops.epoch_is_over(trainer)):
                self._write(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what is due; all other callbacks and the module are done with the epoch."""
        if self._due is not None:
            self._write(trainer)
