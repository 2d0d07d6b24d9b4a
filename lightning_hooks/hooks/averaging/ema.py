"""The averages of mmcv, mmdetection and MMEngine: a rule for the weight of the model in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.base import AveragingHook
from lightning_hooks.hooks.averaging.checks import check_momentum
from lightning_hooks.schedules import averages
from lightning_hooks.utils.arguments import (
    check_bool,
    check_choice,
    check_function,
    check_int,
    check_number,
    shown,
)

__all__ = [
    "BaseEMAHook",
    "EMAHook",
    "ExpMomentumEMAHook",
    "LinearMomentumEMAHook",
    "MomentumAnnealingEMAHook",
    "StochasticWeightAverageHook",
]


@HOOKS.register_module()
class EMAHook(AveragingHook):
    """Keeps an exponential moving average of the parameters and validates with it.

    ``average = (1 - m) * average + m * parameter`` after an optimizer step. The average starts with
    the weights at the start of the run (or where averaging begins); ``m`` is
    :func:`~lightning_hooks.schedules.averages.ema_momentum` of
    ``1 - (1 - momentum) ** interval``, constant with ``warm_up=0``, and
    :func:`~lightning_hooks.schedules.averages.fast_momentum` with ``warm_up="fast"``.

    Evaluation, checkpoints, ``apply_to`` and ``export`` are described in
    :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`. From a checkpoint without an
    average, averaging starts with the checkpoint's weights; a checkpoint by Lightning's
    ``EMAWeightAveraging`` gives both sets of weights.

    Args:
        momentum: The weight of the model in the average per step, in (0, 1).
        interval: Optimizer steps from one update to the next.
        warm_up: Optimizer steps with smaller momentum, mmcv's; 0 or 1 for none. ``"fast"`` for a
            larger momentum at first, from a decay of ``(1 + t) / (10 + t)`` at update ``t``.
        resume_from: A checkpoint to resume from.
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device``,
            ``after_fit``, ``validate`` and ``precise_bn`` of
            :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for DeepSpeed.

    Source: mmcv's ``EMAHook``; ``begin_iter`` and ``begin_epoch`` are MMEngine's idea.

    Note:
        Departures from mmcv: ``warm_up`` works (see ``ema_momentum``); an ``interval`` of k
        gives k times the weight, not ``momentum ** k``; optimizer steps are counted, not batches;
        steps skipped by a gradient scaler do not count (except with fused optimizers, see
        :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`); the update is a lerp,
        closer to the exact value; a step to NaN is left out; the average is no buffer of the
        model; frozen parameters have no average of their own; an ``EvalHook`` by iteration
        evaluates the average (in mmcv the raw weights).
    """

    _distinguishing = ("momentum", "interval", "warm_up")

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        warm_up: int | Literal["fast"] = 100,
        resume_from: str | None = None,
        **options: Any,
    ) -> None:
        check_momentum(momentum)
        super().__init__(interval, resume_from, **options)
        if isinstance(warm_up, str):
            check_choice("warm_up", warm_up, ("fast",), "an int of at least 0")
        else:
            check_int("warm_up", warm_up, 0)
        self.momentum = momentum
        self.warm_up = warm_up

    def _model_weight(self, runner: Runner) -> float:
        """Return the weight at this step."""
        momentum = averages.over_interval(self.momentum, self.interval)
        if self.warm_up == "fast":
            return averages.fast_momentum(self._updates, momentum)
        return averages.ema_momentum(self._steps, momentum, self.warm_up)

    def _share_of_first_weights(self, steps: int) -> float:
        """Return the share of the first weights in the average after some optimizer steps."""
        return averages.share_of_beginning(self.momentum, self.warm_up, steps, self.interval)

    def _is_due(self, step: int) -> bool:
        return step % self.interval == 0


# -- mmdetection's ---------------------------------------------------------------------------------


class BaseEMAHook(AveragingHook):
    """Keeps an exponential moving average of parameters and buffers and validates with it.

    ``average = (1 - m) * average + m * value`` after every ``interval``-th optimizer step, with
    ``m = momentum_fun(step)`` or ``momentum``.

    Args:
        momentum: The weight of the model in the average per update, in (0, 1).
        interval: Optimizer steps from one update to the next; the first is after ``interval``.
        skip_buffers: Use the model's own buffers with the average.
        resume_from: A checkpoint to resume from.
        momentum_fun: A function of the optimizer step, counted from 0, for the weight.
        options: ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device``,
            ``after_fit``, ``validate`` and ``precise_bn`` of
            :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for DeepSpeed.

    Source: mmdetection's ``BaseEMAHook``.

    Note:
        Departures from mmdetection: optimizer steps are counted, not batches; the update is a
        lerp; a step to NaN is left out; integer buffers are always the model's (in mmdetection
        the average keeps the integers of the start of the run); the average is no buffer of the
        model; frozen parameters have no average of their own.
    """

    distinguishing: tuple[str, ...] = ("momentum", "interval")

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        skip_buffers: bool = False,
        resume_from: str | None = None,
        momentum_fun: Callable[[int], float] | None = None,
        **options: Any,
    ) -> None:
        check_momentum(momentum)
        check_bool(skip_buffers=skip_buffers)
        check_function("momentum_fun", momentum_fun)
        if "buffers" in options:
            buffers = options["buffers"]  # not in the call: jsonargparse follows options
            raise TypeError(
                f"{type(self).__name__} has no buffers={shown(buffers)}: "
                "write mmdetection's skip_buffers=True or False"
            )
        super().__init__(
            interval, resume_from, buffers="ignore" if skip_buffers else "average", **options
        )
        self.momentum = momentum
        self.skip_buffers = skip_buffers
        self.momentum_fun = momentum_fun

    def updates_at(self, step: int) -> bool:
        """Whether this is an ``interval``-th optimizer step."""
        return (step + 1) % self.interval == 0

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight at this step."""
        return self._weight(self._steps)

    def _weight(self, step: int) -> float:
        return self._rule(step) if self.momentum_fun is None else self.momentum_fun(step)

    def _rule(self, step: int) -> float:
        return self.momentum

    def _share_of_first_weights(self, steps: int) -> float:
        """Return the share of the first weights after some steps, roughly if below 0.5."""
        share = 1.0
        for step in range(self.interval - 1, steps, self.interval):
            share *= 1 - self._weight(step)
            if share < 0.5:
                break
        return share


@HOOKS.register_module()
class ExpMomentumEMAHook(BaseEMAHook):
    """An average whose momentum falls exponentially, from almost 1 to ``momentum``.

    ``m = (1 - momentum) * exp(-(1 + step) / total_iter) + momentum``

    Args:
        total_iter: The scale of the fall, in optimizer steps.
        kwargs: The arguments of :class:`BaseEMAHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range.

    Source: mmdetection's ``ExpMomentumEMAHook``, as YOLOX uses it.

    Note:
        Departures from mmdetection: as :class:`BaseEMAHook`; a given ``momentum_fun`` counts
        (mmdetection ignores a ``momentum_fun``).
    """

    distinguishing = ("momentum", "interval", "total_iter")

    def __init__(self, total_iter: int = 2000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_int("total_iter", total_iter, 1)
        self.total_iter = total_iter

    def _rule(self, step: int) -> float:
        return averages.exp_momentum(step, self.momentum, self.total_iter)


@HOOKS.register_module()
class LinearMomentumEMAHook(BaseEMAHook):
    """An average whose momentum rises to its final value.

    ``m = min(1 - (1 - momentum) ** interval, (1 + step) / (warm_up + step))``. The second term
    matters only if ``momentum * warm_up`` is above 1, so not with the default momentum.

    Args:
        warm_up: The scale of the rise, in optimizer steps.
        kwargs: The arguments of :class:`BaseEMAHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range.

    Source: mmdetection's ``LinearMomentumEMAHook``.

    Note:
        Departures from mmdetection: as :class:`BaseEMAHook`; an ``interval`` of k gives k times
        the weight, not ``momentum ** k``; a given ``momentum_fun`` counts (mmdetection ignores a
        ``momentum_fun``).
    """

    distinguishing = ("momentum", "interval", "warm_up")

    def __init__(self, warm_up: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_int("warm_up", warm_up, 0)
        self.warm_up = warm_up

    def _rule(self, step: int) -> float:
        momentum = averages.over_interval(self.momentum, self.interval)
        return averages.linear_momentum(step, momentum, self.warm_up)


# -- MMEngine's ------------------------------------------------------------------------------------


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
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device``,
            ``after_fit``, ``validate`` and ``precise_bn`` of
            :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for DeepSpeed.

    Source: MMEngine's ``EMAHook(ema_type="MomentumAnnealingEMA")``; ``power`` is timm's.

    Note:
        Departures from MMEngine: optimizer steps are counted, not batches; iterations and epochs
        before the beginning are counted from 0.
    """

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
        return averages.annealing_momentum(self._steps, self.momentum, self.gamma, self.power)


@HOOKS.register_module()
class StochasticWeightAverageHook(AveragingHook):
    """Keeps the mean of the models of all updates so far and validates with it (SWA).

    ``average = (1 - m) * average + m * parameter`` after an optimizer step, with
    ``m = 1 / (updates + 1)``: the first update copies the model.

    Args:
        interval: Optimizer steps between two models of the mean.
        resume_from: A checkpoint to resume from.
        options: ``buffers``, ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device``,
            ``after_fit``, ``validate`` and ``precise_bn`` of
            :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for DeepSpeed.

    Source: MMEngine's ``EMAHook(ema_type="StochasticWeightAverage")``.

    Note:
        Departures from MMEngine: as :class:`MomentumAnnealingEMAHook`.
    """

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight at this step."""
        return averages.equal_share(self._updates)
