"""The runner of a run counted in epochs."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["EpochRunner"]


class EpochRunner(Runner):
    """A run counted in epochs: mmcv's EpochBasedRunner."""

    twin = "EpochBasedRunner"
    _closed_epoch: int | None = None
    _own_max_iters: int | None = None

    def restore_counters(self, entry: dict[str, Any], *, closed: bool) -> None:
        """Count the epoch as done if the validation at the epoch's end was running."""
        self._closed_epoch = self.trainer.current_epoch if closed else None

    @property
    def epoch(self) -> int:
        """Epochs done, without the current epoch."""
        return self._epoch

    @property
    def _epoch(self) -> int:
        # Lightning counts an epoch after the epoch's validation, mmcv before
        current = self.trainer.current_epoch
        return current + (self._closed_epoch == current)

    @_epoch.setter
    def _epoch(self, value: int) -> None:
        progress.set_epoch(self.trainer, value)

    @property
    def _max_epochs(self) -> int | None:
        limit = self.trainer.max_epochs
        return None if limit is None or limit < 0 else limit

    @_max_epochs.setter
    def _max_epochs(self, value: int) -> None:
        self.renew()
        self.trainer.fit_loop.max_epochs = value

    @property
    def _max_iters(self) -> int | None:
        if self._own_max_iters is not None:
            return self._own_max_iters
        limits = []
        batches = self.trainer.num_training_batches
        if self._max_epochs is not None and batches != float("inf"):
            limits.append(self._max_epochs * int(batches))
        if self.trainer.max_steps >= 0:
            steps = progress.iterations_of_steps(self.trainer, self.trainer.max_steps)
            for hook in self.hooks:
                if hasattr(hook, "iterations_of"):  # owns steps of several iterations each
                    steps = hook.iterations_of(steps, self.trainer)
            limits.append(steps)
        return min(limits, default=None)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        self.renew()
        self._own_max_iters = value  # until the next epoch computes the limit, as in mmcv

    @property
    def _file_number(self) -> int:
        return self.epoch + 1
