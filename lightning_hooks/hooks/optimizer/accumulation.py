"""``GradientCumulativeOptimizerHook``: a single optimizer step for several batches."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook
from lightning_hooks.utils.arguments import check_bool, check_count
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["GradientCumulativeOptimizerHook"]


@HOOKS.register_module()
class GradientCumulativeOptimizerHook(OptimizerHook):
    """Steps every ``cumulative_iters`` iterations on the mean of the losses.

    Iterations are counted over the whole run, across epochs. Each loss is divided by
    ``cumulative_iters``; the losses of a shorter last group are divided by the size of the group,
    ``max_iters % cumulative_iters``. Lightning's ``accumulate_grad_batches`` steps at the end of
    every epoch, and divides a remainder by the full number. With ``by_epoch`` this hook steps at
    the end of every epoch, too, and divides the losses of the last group by the group's size.

    The hook owns backward and step with any module (see :class:`OptimizerHook`).
    ``Trainer(max_steps=...)`` counts the hook's steps, or iterations in a run counted in
    iterations.

    Args:
        cumulative_iters: Iterations to a step.
        by_epoch: Whether the count of iterations restarts in every epoch.
        kwargs: Arguments of :class:`OptimizerHook`.

    Raises:
        TypeError: if ``by_epoch`` is no bool.
        ValueError: if ``cumulative_iters`` is no int of at least 1; in the first iteration, if the
            run, or with ``by_epoch`` the epoch, has no known length.

    Source: mmcv's ``GradientCumulativeOptimizerHook``.

    Note:
        Departures from mmcv: the remainder follows a change of ``max_epochs``, and is announced
        once (mmcv: in each iteration of the remainder). ``by_epoch`` is new.
    """

    # for subclasses that do not call super().__init__()
    cumulative_iters: int = 1
    divisible_iters: int = 0
    remainder_iters: int = 0
    _by_epoch: bool = False
    initialized: bool = False
    _announced: bool = False
    _has_warned: bool = False

    def __init__(self, cumulative_iters: int = 1, by_epoch: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count("cumulative_iters", cumulative_iters)
        check_bool(by_epoch=by_epoch)
        self.cumulative_iters = cumulative_iters
        self._by_epoch = by_epoch

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset the state of an earlier fit."""
        super().on_fit_start(trainer, pl_module)
        self.initialized = self._announced = self._has_warned = False

    def _iterations_of(self, steps: int, trainer: L.Trainer) -> int:
        """Return the number of iterations for a number of optimizer steps."""
        if self._by_epoch:
            return progress.iterations_by_epoch(trainer, steps, self.cumulative_iters)
        return steps * self.cumulative_iters

    def has_batch_norm(self, module: torch.nn.Module) -> bool:
        """Whether a module has BatchNorm: the statistics remain per batch."""
        return any(isinstance(part, _BatchNorm) for part in module.modules())

    def after_train_iter(self, runner: Runner) -> None:
        """Add the iteration's gradients; clip and step at the end of a group."""
        if not self.initialized:
            self._init(runner)
        factor = self._get_loss_factor(runner)
        if runner.outputs:  # empty if the step returned None
            self._backward(runner, runner.outputs["loss"] / factor)
        elif not self._has_warned:
            self._has_warned = True
            rank_zero_warn(
                f"{type(self).__name__}: a batch for which training_step returns None adds no "
                "gradients to its group, which is divided by the same number all the same"
            )
        index, total = self._place(runner)
        is_last = index + 1 == total or self.is_last_iter(runner)
        if is_last or (index + 1) % self.cumulative_iters == 0:
            self._clip_and_step(runner)
            self._zero_grad(runner)

    after_train_iter.takes_none = True  # type: ignore[attr-defined]  # a subclass's own method does not

    def _place(self, runner: Runner) -> tuple[int, int]:
        """Return the iteration's index and the number of iterations, in the run or in the epoch."""
        if not self._by_epoch:
            assert runner.max_iters is not None
            return runner.iter, runner.max_iters
        index, total = progress.batch_idx(runner.trainer), int(runner.trainer.num_training_batches)
        if runner.max_iters is None:
            return index, total
        return index, min(total, index + runner.max_iters - runner.iter)  # the run may end before

    def _init(self, runner: Runner) -> None:
        """Check the length of the run, and log mmcv's warnings; once in a fit."""
        name = type(self).__name__
        if self._by_epoch and runner.trainer.num_training_batches == float("inf"):
            raise ValueError(
                f"{name}(by_epoch=True) needs the length of an epoch: give a training loader with "
                "a length, or Trainer(limit_train_batches=...)"
            )
        if runner.max_iters is None and not self._by_epoch:
            raise ValueError(
                f"{name} needs the length of the run: give Trainer(max_steps=...), "
                "or max_epochs and a training loader with a length"
            )
        if self._place(runner)[0] % self.cumulative_iters != 0 and not runner.step_counts.lost:
            runner.logger.warning(
                # these words are mmcv's: text logs are compared
                "Resume iter number is not divisible by cumulative_iters in "
                "GradientCumulativeOptimizerHook, which means the gradient of some iters is lost "
                "and the result may be influenced slightly."
            )
        if self.cumulative_iters > 1 and self.has_batch_norm(runner.model):
            runner.logger.warning(
                "GradientCumulativeOptimizerHook may slightly decrease performance if the model "
                "has BatchNorm layers."
            )
        self._split(self._place(runner)[1])
        self.initialized = True

    def _split(self, total: int) -> None:
        """Set mmcv's numbers of iterations in whole groups and in the last, shorter group."""
        self.remainder_iters = total % self.cumulative_iters
        self.divisible_iters = total - self.remainder_iters

    def _get_loss_factor(self, runner: Runner) -> int:
        """Return the divisor of this iteration's loss."""
        index, total = self._place(runner)
        self._split(total)  # the length of the run may have changed
        if index < self.divisible_iters:
            return self.cumulative_iters
        if not self._announced:
            self._announced = True
            runner.logger.warning(
                # mmcv's words, but once
                "Loss will be divided by %d in the last %d iterations%s because they are not "
                "enough for %d cumulative_iters.",
                self.remainder_iters,
                self.remainder_iters,
                " of an epoch" if self._by_epoch else "",
                self.cumulative_iters,
            )
        return self.remainder_iters
