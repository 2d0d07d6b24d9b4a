"""Count the optimizer steps of a run, and the steps that reach an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["AppliedSteps", "StepCounts"]


class StepCounts:
    """The optimizer steps of a run: steps made, and steps of epochs to come.

    Args:
        runner: The runner with the optimizers.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.before = 0
        """Steps of a file resumed by a hook, not counted by Lightning."""
        self.at_epoch_start = 0
        """Steps made when the present epoch began."""
        self.stepped_at: int | None = None
        """Iterations done at the last step of hooks that own the steps; None if unknown."""
        self.lost = 0
        """Iterations before this run whose gradients are lost, as a line has told."""

    def begin_run(self) -> None:
        """Mark the start of a run: no gradients wait for a step."""
        runner = self._runner
        self.stepped_at = runner.iter if runner.hooks_own_step else None
        self.lost = 0

    def note_step(self) -> None:
        """Note that a hook has made a step in this iteration."""
        self.stepped_at = self._runner.iter + 1

    def note_no_loss(self) -> None:
        """Note that this iteration, whose hooks own the step, has no gradients."""
        if self.stepped_at == self._runner.iter:
            self.note_step()

    @property
    def waiting(self) -> int:
        """The iterations whose gradients wait for a step, and are in no file.

        A module with manual optimization is assumed to step in each.
        """
        runner = self._runner
        if self.stepped_at is not None:
            return max(runner.iterations_done - self.stepped_at, 0)
        waits = progress.accumulates(runner.trainer)
        return progress.batches_in_window(runner.trainer) if waits else 0

    @property
    def made(self) -> int:
        """The steps made, per optimizer; a step may take several iterations.

        Derived from Lightning's ``global_step``, which checkpoints restore.
        """
        return int(self._runner.trainer.global_step // self._optimizers + self.before)

    @property
    def _optimizers(self) -> int:
        """The number of optimizers in Lightning's sum of steps."""
        automatic = self._runner.module.automatic_optimization
        return 1 if automatic else max(len(self._runner.trainer.optimizers), 1)

    def begin_epoch(self, done: int) -> None:
        """Mark the start of an epoch of which so many batches are done."""
        trainer = self._runner.trainer
        each = self._batches_of_step(trainer.current_epoch) if done else 1
        # the last batch of an epoch always ends a step
        steps = -(-done // each) if progress.is_last_batch(trainer) else done // each
        self.at_epoch_start = self.made - steps

    def until(self, epochs: int) -> int:
        """Return the steps made after the run's first epochs; those to come are as the present.

        Raises:
            ValueError: as :meth:`of_epochs`.
        """
        if self._runner.hooks_own_step:
            return self._of_hooks(self._runner.iters_until(epochs))
        begun = self.of_epochs(self._runner.trainer.current_epoch)
        return max(self.at_epoch_start + self.of_epochs(epochs) - begun, 0)

    def of_run(self) -> int | None:
        """Return the steps of the whole run, None if unknown.

        ==========================  ==============================================================
        steps are made by           number of steps
        ==========================  ==============================================================
        Lightning                   the steps made before this epoch, and the steps of this epoch
                                    for each epoch to come; the last batch of an epoch always ends
                                    a step; at most ``max_steps``
        hooks that own backward     ``max_iters`` by ``cumulative_iters``, rounded up; with the
                                    hook's ``by_epoch`` rounded up per epoch
        the module                  ``max_steps``, by the number of optimizers
        ==========================  ==============================================================
        """
        runner, trainer = self._runner, self._runner.trainer
        if runner.hooks_own_step:
            return None if runner.max_iters is None else self._of_hooks(runner.max_iters)
        if not runner.module.automatic_optimization:
            steps = -(-trainer.max_steps // self._optimizers)
            return None if trainer.max_steps < 0 else steps
        limits = [] if trainer.max_steps < 0 else [int(trainer.max_steps)]
        epochs = trainer.max_epochs
        if epochs is not None and epochs >= 0 and trainer.num_training_batches != float("inf"):
            limits.append(self.until(epochs))
        return min(limits, default=None)

    def of_epochs(self, epochs: int) -> int:
        """Return the steps of the run's first epochs.

        Raises:
            ValueError: if the loader has no length, or the module steps by itself.
        """
        runner, batches = self._runner, self._runner.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError("steps of an epoch are counted: the training loader needs a length")
        if runner.hooks_own_step:
            return self._of_hooks(epochs * int(batches))
        if not runner.module.automatic_optimization:
            raise ValueError(
                "steps of an epoch are counted, and only the module knows when it steps"
            )
        changes = (epoch for epoch in self._changes if 0 < epoch < epochs)
        spans = pairwise([0, *changes, epochs])
        return sum((b - a) * -(-int(batches) // self._batches_of_step(a)) for a, b in spans)

    def iterations_to(self, steps: int, start: int) -> int:
        """Return the iterations done after the run's first steps.

        A module with manual optimization is assumed to step each optimizer once per iteration.

        Args:
            steps: Lightning's number of steps.
            start: The iterations done when the present epoch began.
        """
        trainer = self._runner.trainer
        if not self._runner.module.automatic_optimization:
            return -(-steps // self._optimizers)
        epoch, batches = trainer.current_epoch, trainer.num_training_batches
        left = max(steps - self.at_epoch_start, 0)
        if batches == float("inf") and start < self.at_epoch_start * self._batches_of_step(epoch):
            self._runner.warn_once(
                "the training loader has no length, and a pass has ended between the batches of an "
                "accumulated step, which Lightning then makes: how many iterations max_steps are, "
                "which schedules by iteration need, is known in the last pass only; schedules with "
                "by_step=True count steps"
            )
        for change in self._changes if batches != float("inf") else ():
            epochs = max(change - epoch, 0)
            of_epochs = epochs * -(-int(batches) // self._batches_of_step(epoch))
            if epochs and left > of_epochs:
                start, left, epoch = start + epochs * int(batches), left - of_epochs, change
        return start + progress.iterations_by_epoch(trainer, left, self._batches_of_step(epoch))

    def _of_hooks(self, iterations: int) -> int:
        """Return the steps made by hooks in a number of iterations."""
        each, batches = self._batches_of_step(), self._runner.trainer.num_training_batches
        owners = [hook for hook in self._runner.hooks if hasattr(hook, "cumulative_iters")]
        if batches == float("inf") or not any(getattr(hook, "_by_epoch", False) for hook in owners):
            return -(-iterations // each)
        epochs, rest = divmod(iterations, int(batches))
        return epochs * -(-int(batches) // each) + -(-rest // each)

    def _batches_of_step(self, epoch: int = 0) -> int:
        """Return the number of batches per step in an epoch.

        If hooks own the steps, the greatest ``cumulative_iters`` of a hook.
        """
        if self._runner.hooks_own_step:
            each = (getattr(hook, "cumulative_iters", 1) for hook in self._runner.hooks)
            return int(max(each, default=1))
        scheduler = self._scheduler
        if scheduler is not None:
            return int(scheduler.get_accumulate_grad_batches(epoch))
        return int(self._runner.trainer.accumulate_grad_batches)

    @property
    def _changes(self) -> list[int]:
        """The epochs in which the number of batches per step changes."""
        return [] if self._scheduler is None else sorted(self._scheduler.scheduling)

    @property
    def _scheduler(self) -> GradientAccumulationScheduler | None:
        """The callback that changes the number of batches per step with the epoch."""
        callbacks = callbacks_of(self._runner.trainer)
        schedulers = (c for c in callbacks if isinstance(c, GradientAccumulationScheduler))
        return next(schedulers, None)

    def accumulate_as_scheduled(self) -> None:
        """Set the epoch's factor before the first batch; within an epoch Lightning does not.

        When the run starts is too early: the callback then refuses a factor.
        """
        if self._scheduler is not None:
            self._scheduler.on_train_epoch_start(self._runner.trainer)

    def count_from(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on counting from a file loaded by a hook; mmcv's files hold iterations only."""
        if "global_step" in checkpoint:
            steps = checkpoint["global_step"] // self._optimizers
        else:
            epochs, rest = 0, int(checkpoint["meta"]["iter"])
            batches = self._runner.trainer.num_training_batches
            if self._runner.module.automatic_optimization and batches != float("inf"):
                epochs, rest = divmod(rest, int(batches))
            steps = self.of_epochs(epochs) if epochs else 0
            steps += rest // self._batches_of_step(epochs)
        self.before += steps - self.made


class AppliedSteps:
    """Counts the steps that reach an optimizer, without reading the device.

    Lightning's ``global_step`` also counts a step skipped by the gradient scaler, and an
    ``optimizer_step`` of the module that only calls the closure; neither reaches the optimizer. The
    skipped step of a ``fused=True`` optimizer counts: such an optimizer reads the scaler's flag on
    the device. The steps of optimizers of other libraries are counted by ``global_step``.

    Args:
        trainer: The Trainer, in a fit; steps are counted from now on.
        fit: The stack at whose end counting stops.
    """

    def __init__(self, trainer: L.Trainer, fit: ExitStack | None) -> None:
        self._trainer = trainer
        self._start = trainer.global_step
        self._made = self._asked_before = 0
        self._is_open = False  # between the two hooks of a step, which may call another step()
        self._watches = ExitStack()
        if fit is not None:
            fit.callback(self.close)
        self._before_next: Callable[[], None] | None = None
        self._follow()

    def before_next(self, act: Callable[[], None]) -> None:
        """Call a function before the next step; at once for optimizers of other libraries."""
        if self._trainer.optimizers is not self._optimizers:  # replaced, as in before_run
            self._follow()
        if self._follows:
            self._before_next = act
        else:
            act()

    def _follow(self) -> None:
        """Watch the Trainer's present optimizers."""
        self.close()
        self._optimizers = self._trainer.optimizers
        self._follows = all(
            isinstance(optimizer, torch.optim.Optimizer) for optimizer in self._optimizers
        )
        for optimizer in self._optimizers if self._follows else ():
            self._watches.callback(optimizer.register_step_pre_hook(self._begin).remove)
            self._watches.callback(optimizer.register_step_post_hook(self._end).remove)

    def _begin(self, *_: Any) -> None:
        self._is_open = True
        if self._before_next is not None:
            act, self._before_next = self._before_next, None
            act()

    def _end(self, *_: Any) -> None:
        self._made += self._is_open
        self._is_open = False

    @property
    def made(self) -> int:
        """The steps of all optimizers together."""
        asked = self._trainer.global_step - self._start
        if not self._follows or self._trainer.optimizers is not self._optimizers:
            self._made += asked - self._asked_before
            self._follow()
        self._asked_before = asked
        return self._made

    @property
    def skipped(self) -> int:
        """The skipped steps of each optimizer."""
        made = self.made
        return max(self._asked_before - made, 0) // max(len(self._optimizers), 1)

    def close(self) -> None:
        """Stop counting."""
        self._watches.close()
