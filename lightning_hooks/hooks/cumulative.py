"""``GradientCumulativeOptimizerHook``: one step for several batches, counted over the run."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks.hooks.optimizer import OptimizerHook
from lightning_hooks.registry import HOOKS

__all__ = ["GradientCumulativeOptimizerHook"]


@HOOKS.register_module()
class GradientCumulativeOptimizerHook(OptimizerHook):
    """Steps every ``cumulative_iters`` iterations on the mean of their losses.

    The iterations are counted over the whole run, across epochs. Each loss is divided by
    ``cumulative_iters``; those of the last iterations of the run, when there are too few of them,
    by their number ``max_iters % cumulative_iters``. Lightning's own ``accumulate_grad_batches``
    steps at the end of every epoch, and divides a remainder by the full number.

    The hook owns backward and step with any module (see :class:`OptimizerHook`).

    Args:
        cumulative_iters: Iterations to a step.
        kwargs: Those of :class:`OptimizerHook`.

    Raises:
        ValueError: if ``cumulative_iters`` is no int of at least 1; in the first iteration, if the
            run has no known length.

    Source: mmcv's ``GradientCumulativeOptimizerHook``.

    Note:
        Departures from mmcv: the remainder follows a change of ``max_epochs``, and is announced
        once (mmcv: in each of its iterations).
    """

    # for subclasses that do not call super().__init__()
    cumulative_iters: int = 1
    divisible_iters: int = 0
    remainder_iters: int = 0
    initialized: bool = False

    def __init__(self, cumulative_iters: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if type(cumulative_iters) is not int or cumulative_iters < 1:
            raise ValueError(
                f"cumulative_iters must be an int of at least 1, got {cumulative_iters!r}"
            )
        self.cumulative_iters = cumulative_iters

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Forget the fit before."""
        super().on_fit_start(trainer, pl_module)
        self.initialized = False

    def has_batch_norm(self, module: torch.nn.Module) -> bool:
        """Whether there is BatchNorm, whose statistics are still those of single batches."""
        return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in module.modules())

    def after_train_iter(self, runner: Any) -> None:
        """Add the iteration's gradients; clip and step when it is the last one of its group."""
        if not self.initialized:
            self._init(runner)
        loss = runner.outputs["loss"] / self._get_loss_factor(runner)
        self._backward(runner, loss)
        if self.every_n_iters(runner, self.cumulative_iters) or self.is_last_iter(runner):
            self._clip_and_step(runner)
            self._zero_grad(runner)

    def _init(self, runner: Any) -> None:
        """Warn of what the user should know; once in a fit."""
        if runner.max_iters is None:
            raise ValueError(
                f"{type(self).__name__} needs the length of the run: give Trainer(max_steps=...), "
                "or max_epochs and a training loader with a length"
            )
        if runner.iter % self.cumulative_iters != 0:
            runner.logger.warning(
                # these three as mmcv has them: text logs are compared
                "Resume iter number is not divisible by cumulative_iters in "
                "GradientCumulativeOptimizerHook, which means the gradient of some iters is lost "
                "and the result may be influenced slightly."
            )
        if self.cumulative_iters > 1 and self.has_batch_norm(runner.model):
            runner.logger.warning(
                "GradientCumulativeOptimizerHook may slightly decrease performance if the model "
                "has BatchNorm layers."
            )
        self.initialized = True

    def _get_loss_factor(self, runner: Any) -> int:
        """Return what this iteration's loss is divided by."""
        self.remainder_iters = runner.max_iters % self.cumulative_iters
        self.divisible_iters = runner.max_iters - self.remainder_iters
        if runner.iter < self.divisible_iters:
            return self.cumulative_iters
        if runner.iter == self.divisible_iters:
            runner.logger.warning(
                "Loss will be divided by %d in the last %d iterations because they are not enough "
                "for %d cumulative_iters.",
                self.remainder_iters,
                self.remainder_iters,
                self.cumulative_iters,
            )
        return self.remainder_iters
