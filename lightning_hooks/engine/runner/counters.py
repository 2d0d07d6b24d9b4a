"""Count the iterations, epochs and optimizer steps of a run, from Lightning's progress."""

from __future__ import annotations

import functools
from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.runner.optimizer_steps import steps_done, steps_of, steps_of_run

__all__ = ["Counters"]


class Counters:
    """The counters of a Runner, under mmcv's names; ``_iter`` and ``_inner_iter`` may be set."""

    trainer: L.Trainer
    mode: str | None

    counts_epochs: bool = True
    """Whether the run is counted in epochs rather than in iterations."""

    hooks_step: bool = False
    """Whether hooks own backward and step; Lightning counts the steps of the hooks' optimizer."""

    steps_before: int = 0
    """Optimizer steps of a file resumed by a hook, not counted by Lightning."""

    _epoch: Any
    _max_epochs: Any
    _max_iters: Any
    _iter_shift = 0  # added to Lightning's count by a hook or a resumed run
    _stale_inner_iter: int | None = 0  # None: Lightning's

    def _watch(self, trainer: L.Trainer) -> None:
        self._counts = progress.batch_counts(trainer)
        self._counts_of_epoch = progress.batch_counts_of_epoch(trainer)

    def restore_counters(self, entry: dict[str, Any], *, closed: bool) -> None:
        """Take further counters from a checkpoint's entry.

        Args:
            entry: The driver's entry; empty without a checkpoint.
            closed: Whether the run goes on inside the validation at an epoch's end.
        """

    @property
    def iter(self) -> int:
        """Training iterations done, without the current iteration."""
        return self._counts.completed + self._iter_shift  # type: ignore[no-any-return]

    @property
    def _iter(self) -> int:
        return self.iter

    @_iter.setter
    def _iter(self, value: int) -> None:
        self._iter_shift = value - self._counts.completed

    @property
    def epoch(self) -> int:
        """Epochs done, without the current epoch."""
        return int(self._epoch)

    @property
    def inner_iter(self) -> int:
        """The index of the batch in the epoch; between epochs, the index of the last batch."""
        if self._stale_inner_iter is not None:
            return self._stale_inner_iter
        ready: int = self._counts_of_epoch.ready  # the current batch included
        return ready - 1 if ready else 0

    @property
    def _inner_iter(self) -> int:
        return self.inner_iter

    @_inner_iter.setter
    def _inner_iter(self, value: int | None) -> None:
        self._stale_inner_iter = value

    @property
    def max_epochs(self) -> int | None:
        """Epochs to do, None where the run is counted in iterations."""
        limit: int | None = self._max_epochs
        return limit

    @functools.cached_property
    def max_iters(self) -> int | None:
        """Iterations to do, None where the loader has no length."""
        limit: int | None = self._max_iters
        return limit

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch is the epoch's last, also with a limit or a loader without length."""
        if self.mode == "val":
            return bool(self.inner_iter + 1 >= sum(self.trainer.num_val_batches))
        return progress.is_last_batch(self.trainer)

    # -- optimizer steps -------------------------------------------------------------------

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps made; a step may take several iterations."""
        return steps_done(self)

    @functools.cached_property
    def max_optimizer_steps(self) -> int | None:
        """Optimizer steps to make, None if unknown."""
        return steps_of_run(self)

    def optimizer_steps_of(self, epochs: int) -> int:
        """Return the optimizer steps of the run's first epochs."""
        return steps_of(self, epochs)

    def renew(self) -> None:
        """Forget the cached limits, which are kept for an epoch as in mmcv."""
        vars(self).pop("max_iters", None)
        vars(self).pop("max_optimizer_steps", None)
