"""Count the iterations, epochs and optimizer steps of a run, from Lightning's progress."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from lightning_hooks.engine.hook_list import HookList
from lightning_hooks.engine.lightning_api import progress

__all__ = ["Counters"]


class Counters:
    """The counters of a Runner, under mmcv's names; ``_iter`` and ``_inner_iter`` may be set."""

    trainer: L.Trainer
    module: L.LightningModule
    mode: str | None
    _hook_list: HookList

    counts_epochs: bool = True
    """Whether the run is counted in epochs rather than in iterations."""

    hooks_step: bool = False
    """Whether hooks own backward and step; Lightning counts the steps of the hooks' optimizer."""

    steps_before: int = 0
    """Optimizer steps of a file resumed by a hook, not counted by Lightning."""

    closed_epoch: int | None = None
    """The epoch with an ``after_train_epoch``, until Lightning has counted the epoch."""

    own_max_iters: int | None = None
    """A limit set by a hook; in a run counted in epochs until the end of the epoch."""

    last_val_iter: int = 0
    """Iterations done at the last validation, in a run counted in iterations."""

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
        """Optimizer steps made, per optimizer; a step may take several iterations.

        Derived from Lightning's ``global_step``, which checkpoints restore.
        """
        return int(self.trainer.global_step // self._counted_optimizers + self.steps_before)

    @property
    def _counted_optimizers(self) -> int:
        """The number of optimizers in Lightning's sum of steps."""
        automatic = self.module.automatic_optimization
        return 1 if automatic else max(len(self.trainer.optimizers), 1)

    @functools.cached_property
    def max_optimizer_steps(self) -> int | None:
        """Optimizer steps of the whole run, None if unknown.

        ==========================  ==============================================================
        steps are made by           number of steps
        ==========================  ==============================================================
        Lightning                   ``max_epochs`` times the steps of an epoch; the last batch of
                                    an epoch always ends a step; at most ``max_steps``
        hooks that own backward     ``max_iters`` by ``cumulative_iters``, rounded up; with the
                                    hook's ``by_epoch`` rounded up per epoch
        the module                  ``max_steps``, by the number of optimizers
        ==========================  ==============================================================
        """
        trainer = self.trainer
        if self.hooks_step:
            return None if self.max_iters is None else self._steps_of_hooks(self.max_iters)
        if not self.module.automatic_optimization:
            steps = -(-trainer.max_steps // self._counted_optimizers)
            return None if trainer.max_steps < 0 else steps
        limits = [] if trainer.max_steps < 0 else [int(trainer.max_steps)]
        epochs = trainer.max_epochs
        if epochs is not None and epochs >= 0 and trainer.num_training_batches != float("inf"):
            limits.append(self.optimizer_steps_of(epochs))
        return min(limits, default=None)

    def optimizer_steps_of(self, epochs: int) -> int:
        """Return the optimizer steps of the run's first epochs.

        Raises:
            ValueError: if the loader has no length, or the module steps by itself.
        """
        batches = self.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError("steps of an epoch are counted: the training loader needs a length")
        if self.hooks_step:
            return self._steps_of_hooks(epochs * int(batches))
        if not self.module.automatic_optimization:
            raise ValueError(
                "steps of an epoch are counted, and only the module knows when it steps"
            )
        return sum(-(-int(batches) // self._batches_of_step(epoch)) for epoch in range(epochs))

    def _steps_of_hooks(self, iterations: int) -> int:
        """Return the number of optimizer steps made by hooks in a number of iterations."""
        each, batches = self._batches_of_step(), self.trainer.num_training_batches
        owners = [hook for hook in self._hook_list if hasattr(hook, "cumulative_iters")]
        if batches == float("inf") or not any(getattr(hook, "by_epoch", False) for hook in owners):
            return -(-iterations // each)
        epochs, rest = divmod(iterations, int(batches))
        return epochs * -(-int(batches) // each) + -(-rest // each)

    def _batches_of_step(self, epoch: int = 0) -> int:
        """Return the number of batches per optimizer step in an epoch.

        If hooks own the steps, the greatest ``cumulative_iters`` of a hook.
        """
        if self.hooks_step:
            each = (getattr(hook, "cumulative_iters", 1) for hook in self._hook_list)
            return int(max(each, default=1))
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, GradientAccumulationScheduler):
                return int(callback.get_accumulate_grad_batches(epoch))
        return int(self.trainer.accumulate_grad_batches)

    def count_steps_from(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on counting from a file loaded by a hook; mmcv's files hold iterations only."""
        if "global_step" in checkpoint:
            steps = checkpoint["global_step"] // self._counted_optimizers
        else:
            epochs, rest = 0, int(checkpoint["meta"]["iter"])
            batches = self.trainer.num_training_batches
            if self.module.automatic_optimization and batches != float("inf"):
                epochs, rest = divmod(rest, int(batches))
            steps = self.optimizer_steps_of(epochs) if epochs else 0
            steps += rest // self._batches_of_step(epochs)
        self.steps_before += steps - self.optimizer_steps

    def renew(self) -> None:
        """Forget the cached limits, which are kept for an epoch as in mmcv."""
        vars(self).pop("max_iters", None)
        vars(self).pop("max_optimizer_steps", None)
