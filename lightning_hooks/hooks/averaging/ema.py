"""``EMAHook``: validate with an exponential moving average of the parameters."""

from __future__ import annotations

import math
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.base import AveragingHook, check_momentum
from lightning_hooks.schedules.averages import ema_momentum, over_interval, share_of_beginning
from lightning_hooks.utils.arguments import check_int

__all__ = ["EMAHook", "ema_momentum"]


@HOOKS.register_module()
class EMAHook(AveragingHook):
    """Keeps an exponential moving average of the parameters and validates with it.

    ``average = (1 - m) * average + m * parameter`` after an optimizer step. The average starts with
    the weights at the start of the run (or where averaging begins); ``m`` is
    :func:`~lightning_hooks.schedules.averages.ema_momentum` of
    ``1 - (1 - momentum) ** interval``, and constant with ``warm_up=0``.

    Evaluation, checkpoints, ``apply_to`` and ``export`` are described in
    :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`. From a checkpoint without an
    average, averaging starts with the checkpoint's weights; a checkpoint by Lightning's
    ``EMAWeightAveraging`` gives both sets of weights.

    Args:
        momentum: The weight of the model in the average per step, in (0, 1).
        interval: Optimizer steps from one update to the next.
        warm_up: Optimizer steps with smaller momentum; 0 or 1 for none.
        resume_from: A checkpoint to resume from.
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device`` and
            ``precise_bn`` of :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for a strategy that flattens
            or partitions the parameters (FSDP, DeepSpeed).

    Source: mmcv's ``EMAHook``; ``begin_iter`` and ``begin_epoch`` are MMEngine's idea.

    Note:
        Departures from mmcv: ``warm_up`` works (see ``ema_momentum``); an ``interval`` of k
        gives k times the weight, not ``momentum ** k``; optimizer steps are counted, not batches;
        steps skipped by a gradient scaler do not count (except with fused optimizers, see
        :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`); the update is a lerp,
        closer to the exact value; a step to NaN is left out; after the run the model holds the
        raw weights (in checkpoints ``state_dict`` is the average, as in mmcv); the average is no
        buffer of the model.
    """

    momentum = 0.0002
    warm_up = 100
    distinguishing = ("momentum", "interval", "warm_up")

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        warm_up: int = 100,
        resume_from: str | None = None,
        **options: Any,
    ) -> None:
        check_momentum(momentum)
        super().__init__(interval, resume_from, **options)
        check_int("warm_up", warm_up, 0)
        self.momentum = momentum
        self.warm_up = warm_up

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight at this step."""
        momentum = over_interval(self.momentum, self.interval)
        return ema_momentum(self.steps, momentum, self.warm_up)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check rivals; warn of a run too short for the average."""
        super().on_train_start(trainer, pl_module)
        self._warn_of_young_average(Driver.of(trainer).runner)

    def _warn_of_young_average(self, runner: Runner) -> None:
        """Warn of a run too short for the average to leave the first weights."""
        steps: float = runner.max_optimizer_steps or 0
        trainer: Any = runner.trainer
        if steps == 0 or math.isinf(steps) or trainer.fast_dev_run:
            return
        begins = [(self.begin_epoch, runner.max_epochs), (self.begin_iter, runner.max_iters)]
        waited = max(begin / length if length and length > 0 else 0.0 for begin, length in begins)
        averaged = round(steps * max(0.0, 1 - waited))
        kept = share_of_beginning(self.momentum, self.warm_up, averaged, self.interval)
        if averaged and kept > 0.5:
            runner.logger.warning(
                f"{class_name(self)}(momentum={self.momentum}, warm_up={self.warm_up}) is "
                f"validated with an average that is too young: after the {averaged} optimizer "
                f"steps of this run {kept:.0%} of the average is still its first weights; a larger "
                "momentum, or a smaller warm_up, follows the model faster"
            )
