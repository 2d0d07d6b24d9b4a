"""MMEngine's other averages: annealed momentum, and the mean of all models (SWA)."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.base import AveragingHook, check_momentum
from lightning_hooks.schedules.averages import annealing_momentum, equal_share
from lightning_hooks.utils.arguments import check_number

__all__ = ["MomentumAnnealingEMAHook", "StochasticWeightAverageHook"]


@HOOKS.register_module()
class MomentumAnnealingEMAHook(AveragingHook):
    """Keeps an exponential moving average that starts as a plain mean and validates with it.

    ``average = (1 - m) * average + m * parameter`` after an optimizer step, with
    ``m = max(momentum, (gamma / (gamma + step)) ** power)``: the first update copies the model.

    Args:
        momentum: The least weight of the model in the average per update, in (0, 1).
        gamma: The scale of the weight's fall, in optimizer steps; above 0.
        interval: Optimizer steps from one update to the next.
        resume_from: A checkpoint to resume from.
        power: The speed of the fall, above 0; a lower power gives the newest models more weight.
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device`` and
            ``precise_bn`` of :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for a strategy that flattens
            or partitions the parameters (FSDP, DeepSpeed).

    Source: MMEngine's ``EMAHook(ema_type="MomentumAnnealingEMA")``; ``power`` is timm's.

    Note:
        Departures from MMEngine: optimizer steps are counted, not batches; iterations and epochs
        before the beginning are counted from 0.
    """

    momentum = 0.0002
    gamma: float = 100
    power: float = 1.0
    distinguishing = ("momentum", "gamma", "power", "interval")

    def __init__(
        self,
        momentum: float = 0.0002,
        gamma: float = 100,
        interval: int = 1,
        resume_from: str | None = None,
        power: float = 1.0,
        **options: Any,
    ) -> None:
        check_momentum(momentum)
        check_number("gamma", gamma, above=0)
        check_number("power", power, above=0)
        super().__init__(interval, resume_from, **options)
        self.momentum = momentum
        self.gamma = gamma
        self.power = power

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight at this step."""
        return annealing_momentum(self.steps, self.momentum, self.gamma, self.power)


@HOOKS.register_module()
class StochasticWeightAverageHook(AveragingHook):
    """Keeps the mean of the models of all updates so far and validates with it (SWA).

    ``average = (1 - m) * average + m * parameter`` after an optimizer step, with
    ``m = 1 / (updates + 1)``: the first update copies the model.

    Args:
        interval: Optimizer steps between two models of the mean.
        resume_from: A checkpoint to resume from.
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device`` and
            ``precise_bn`` of :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for a strategy that flattens
            or partitions the parameters (FSDP, DeepSpeed).

    Source: MMEngine's ``EMAHook(ema_type="StochasticWeightAverage")``.

    Note:
        Departures from MMEngine: as :class:`MomentumAnnealingEMAHook`.
    """

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight at this step."""
        return equal_share(self.updates)
