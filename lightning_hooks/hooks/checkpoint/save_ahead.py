"""Write a checkpoint before the validation in which the process may die, and after it."""

from __future__ import annotations

from functools import partial
from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.pending_validation import after_each_batch
from lightning_hooks.engine.priority import is_family
from lightning_hooks.hooks.checkpoint.model_checkpoint import ModelCheckpointHook
from lightning_hooks.storage.checkpoint_io import writes_for

__all__ = ["SaveAhead"]


class SaveAhead(ModelCheckpointHook):
    """Write a file that is due when the last batch before a validation is over.

    A run resumed from it begins with that validation, and is bit-equal. The file that is written
    after the validation, with its results, has the same name and replaces it.

    A subclass defines ``_number_due`` and ``_write_number``, and calls ``_watch_batches``.
    """

    _saved_at: int | None = None

    def _number_due(self, runner: Any, *, ends_epoch: bool) -> int | None:
        """Return the number in the name of the file that is due after a batch; None for none."""
        raise NotImplementedError(f"{type(self).__name__} must define _number_due(runner)")

    def _write_number(self, trainer: L.Trainer, number: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _write_number(trainer, n)")

    def _watch_batches(self, runner: Any) -> None:
        """Act after batches, where the Trainer or a hook validates.

        Directories of shards, and files of a ``CheckpointIO`` of the user's, are written after
        validations only: nothing replaces them in one step.
        """
        evaluates = any(is_family(hook, "EvalHook") for hook in runner.hooks)
        atomic = not self._in_parts and writes_for(runner.trainer.strategy)
        if self.save_optimizer and atomic and (evaluates or runner.trainer.enable_validation):
            save = partial(self._save_ahead, runner, evaluates)
            patch = after_each_batch(runner.trainer, save)
            self._restore = (*self._restore, patch.remove)

    def _save_ahead(self, runner: Any, evaluates: bool) -> None:
        """Write the file that is due, if a validation follows the batch."""
        trainer = runner.trainer
        ends_epoch = progress.epoch_is_over(trainer)
        number = self._number_due(runner, ends_epoch=ends_epoch)
        if number is not None and ((evaluates and ends_epoch) or progress.validates_next(trainer)):
            if not self.by_epoch:
                self._due = self._saved_at = number  # a resumed run has marked nothing
            runner.saves_ahead = True
            try:
                self._write_number(trainer, number)
            finally:
                runner.saves_ahead = False
