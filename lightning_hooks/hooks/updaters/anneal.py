"""Policies that anneal to a minimum, for learning rates and for momenta.

A policy for both is written once, as a function: the method ``_value`` of two hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters.checks import refuse_length
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.param_groups import Values, map_values
from lightning_hooks.hooks.updaters.updater import Updater, check_share
from lightning_hooks.utils.arguments import check_int, check_number, check_numbers, shown

__all__ = [
    "CosineAnnealingCooldownLrUpdaterHook",
    "CosineAnnealingLrUpdaterHook",
    "CosineAnnealingMomentumUpdaterHook",
    "CosineRestartLrUpdaterHook",
    "FlatCosineAnnealingLrUpdaterHook",
    "LinearAnnealingLrUpdaterHook",
    "LinearAnnealingMomentumUpdaterHook",
    "REXLrUpdaterHook",
    "YOLOXLrUpdaterHook",
]


def set_minimum(hook: Updater, minimum: float | None, ratio: float | None) -> None:
    """Check and set a hook's minimum, given as a number or as a ratio of the base.

    Raises:
        ValueError: if both or neither are given.
    """
    name = f"min_{hook._quantity.symbol}"
    if (minimum is None) == (ratio is None):
        raise ValueError(
            f"give either {name} or {name}_ratio, got {name}={shown(minimum)} "
            f"and {name}_ratio={shown(ratio)}"
        )
    if ratio is None:
        check_number(name, minimum)
    else:
        check_number(f"{name}_ratio", ratio)
    hook._minimum, hook._minimum_ratio = minimum, ratio


def cosine(self: Updater, base: float, position: int, total: int) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.cosine` for a hook's minimum."""
    return schedules.cosine(base, position, total, minimum=self._minimum, ratio=self._minimum_ratio)


def linear(self: Updater, base: float, position: int, total: int) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.linear` for a hook's minimum."""
    return schedules.linear(base, position, total, minimum=self._minimum, ratio=self._minimum_ratio)


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(LrUpdaterHook):
    """Anneals the rate along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_lr: The rate at the end; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given.
    """

    _value, _needs_length = cosine, True

    def __init__(
        self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)


@HOOKS.register_module()
class CosineAnnealingMomentumUpdaterHook(MomentumUpdaterHook):
    """Anneals the momentum along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_momentum: The momentum at the end; give ``min_momentum`` or ``min_momentum_ratio``.
        min_momentum_ratio: The same minimum as a ratio of each group's base momentum.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given.
    """

    _value, _needs_length = cosine, True

    def __init__(
        self,
        min_momentum: float | None = None,
        min_momentum_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_momentum, min_momentum_ratio)


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(LrUpdaterHook):
    """Anneals the rate along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_lr: The rate at the end; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given.
    """

    _value, _needs_length = linear, True

    def __init__(
        self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)


@HOOKS.register_module()
class LinearAnnealingMomentumUpdaterHook(MomentumUpdaterHook):
    """Anneals the momentum along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_momentum: The momentum at the end; give ``min_momentum`` or ``min_momentum_ratio``.
        min_momentum_ratio: The same minimum as a ratio of each group's base momentum.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given.
    """

    _value, _needs_length = linear, True

    def __init__(
        self,
        min_momentum: float | None = None,
        min_momentum_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_momentum, min_momentum_ratio)


@HOOKS.register_module()
class REXLrUpdaterHook(LrUpdaterHook):
    """Decays the rate slowly at first and fast at the end: :func:`~lightning_hooks.schedules.rex`.

    Args:
        min_lr: The rate at the end; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given.

    Source: Chen, Wolfe, Kyrillidis, "REX" (https://arxiv.org/abs/2107.04197).
    """

    _needs_length = True

    def __init__(
        self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)

    def _value(self, base: float, position: int, total: int) -> float:
        """Return :func:`~lightning_hooks.schedules.rex`."""
        return schedules.rex(base, position, total, **self._minimum_arguments)


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(LrUpdaterHook):
    """Keeps the rate, then anneals it: :func:`~lightning_hooks.schedules.flat_cosine`.

    Args:
        start_percent: The share of the run, in [0, 1], at the base rate.
        min_lr: The rate at the end; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a share outside [0, 1], or if both or neither minimum is given.
    """

    _needs_length = True

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)
        self.start_percent = check_share("start_percent", start_percent)

    def _value(self, base: float, position: int, total: int) -> float:
        """Return :func:`~lightning_hooks.schedules.flat_cosine`."""
        start, end = self.start_percent, self._minimum_arguments
        return schedules.flat_cosine(base, position, total, start=start, **end)


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(LrUpdaterHook):
    """Anneals the rate again and again: :func:`~lightning_hooks.schedules.cosine_restart`.

    Args:
        periods: The length of each period; the sum must reach the end of the run.
        restart_weights: For each period, the share of the base rate at the start.
        min_lr: The rate at the end of each period; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for another number of weights than of periods, if both or neither minimum is
            given, and at the start of a run longer than all periods.
    """

    def __init__(
        self,
        periods: list[int],
        restart_weights: Sequence[float] = (1,),
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)
        check_numbers("periods", periods)
        check_numbers("restart_weights", restart_weights)
        if len(periods) != len(restart_weights):
            raise ValueError(
                "periods and restart_weights must have the same length, "
                f"got {shown(periods)} and {shown(restart_weights)}"
            )
        if not all(period > 0 for period in periods):
            raise ValueError(f"periods must be positive, got {shown(periods)}")
        self.periods = periods
        self.restart_weights = restart_weights

    def _value(self, base: float, position: int, total: int | None) -> float:
        """Return :func:`~lightning_hooks.schedules.cosine_restart`, and at its end the minimum."""
        periods, weights = self.periods, self.restart_weights
        if position == sum(periods):
            position, periods, weights = 0, [1], [0]  # no distance to the minimum is left
        return schedules.cosine_restart(
            base, position, periods=periods, weights=weights, **self._minimum_arguments
        )

    def _check(self, total: int) -> None:
        """Raise ValueError for periods shorter than the run."""
        if sum(self.periods) < total:
            raise ValueError(
                f"the periods {list(self.periods)} add up to {sum(self.periods)}, the run has "
                f"{total}: they must reach its end"
            )

    @property
    def cumulative_periods(self) -> list[int]:
        """The end of each period."""
        return list(accumulate(self.periods))


@HOOKS.register_module()
class CosineAnnealingCooldownLrUpdaterHook(LrUpdaterHook):
    """Anneals the rate, then cools it down: :func:`~lightning_hooks.schedules.cosine_cooldown`.

    Args:
        min_lr: The rate at the end of the cosine; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        cool_down_ratio: The rate at the end, as a ratio of the minimum.
        cool_down_time: Epochs (iterations, with ``by_epoch=False``) from the end of the cosine to
            the end of the run.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given, and at the start of a run not longer than
            ``cool_down_time``.
        TypeError: for an argument of the wrong type.

    Source: mmcls' ``CosineAnnealingCooldownLrUpdaterHook``.
    """

    _needs_length = True

    def __init__(
        self,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        cool_down_ratio: float = 0.1,
        cool_down_time: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_minimum(self, min_lr, min_lr_ratio)
        self.cool_down_ratio = check_number("cool_down_ratio", cool_down_ratio)
        self.cool_down_time = check_int("cool_down_time", cool_down_time, 0)

    def _value(self, base: float, position: int, total: int) -> float:
        """Return :func:`~lightning_hooks.schedules.cosine_cooldown`."""
        cool_down: dict[str, Any] = {
            "cool_down_ratio": self.cool_down_ratio,
            "cool_down_time": self.cool_down_time,
        }
        return schedules.cosine_cooldown(
            base, position, total, **self._minimum_arguments, **cool_down
        )

    def _check(self, total: int) -> None:
        """Raise ValueError for a run not longer than the cool-down."""
        if self.cool_down_time >= total:
            raise ValueError(
                f"cool_down_time={self.cool_down_time} must be less than the run's length, {total}"
            )


@HOOKS.register_module()
class YOLOXLrUpdaterHook(CosineAnnealingLrUpdaterHook):
    """Anneals the rate between warm-up and last epochs: :func:`~lightning_hooks.schedules.yolox`.

    The warm-up, for any ``warmup``, is :func:`~lightning_hooks.schedules.yolox_warm_up` times the
    base rate; the cosine begins at the end of the warm-up.

    Args:
        num_last_epochs: The number of epochs at the end with the minimum.
        min_lr: The minimum; give ``min_lr`` or ``min_lr_ratio``.
        min_lr_ratio: The same minimum as a ratio of each group's base rate.
        by_epoch: False: this policy counts iterations.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, if both or neither minimum is given, and at
            the start of a run whose warm-up and last epochs leave no iteration between.
        TypeError: if ``num_last_epochs`` is not an int.

    Source: mmdetection's ``YOLOXLrUpdaterHook``.

    Note:
        Departures from mmdetection: ``by_epoch=True`` is refused (mmdetection compares epochs with
        iterations), and is not the default. An epoch has as many iterations as are trained.
    """

    _counts_iterations = True

    def __init__(
        self,
        num_last_epochs: int,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, by_epoch=by_epoch, **kwargs)
        self.num_last_epochs = check_int("num_last_epochs", num_last_epochs, 0)

    def before_run(self, runner: Runner) -> None:
        """Read the bases, and check the schedule: the cosine needs an iteration."""
        super().before_run(runner)
        runner = self._as_counted(runner)
        first, last = self._warmup_length(runner), self._last(runner)
        total = self._required_length(runner)
        if first + last >= total:
            refuse_length(
                *(self, runner),
                f"a warm-up of {first} and last epochs of {last} {self._iteration_unit}s leave "
                f"none of {total} between them",
            )

    def get_lr(self, runner: Runner, base_lr: float) -> float:
        """Return :func:`~lightning_hooks.schedules.yolox`."""
        first, last = self._warmup_length(runner), self._last(runner)
        total = self._required_length(runner)
        return schedules.yolox(
            base_lr, runner.iter, total, first=first, last=last, **self._minimum_arguments
        )

    def get_warmup_lr(self, cur_iters: int) -> Values:
        """Return the rates of all groups in the warm-up."""
        assert self.warmup_iters is not None
        factor = schedules.yolox_warm_up(cur_iters, self.warmup_iters, ratio=self.warmup_ratio)
        return map_values(partial(mul, factor), self.base_lr)

    def _is_predictable(self) -> bool:
        """Return True: the cosine of ``_value``, over the whole run, has the same bounds."""
        return True

    def _last(self, runner: Runner) -> int:
        """Return the iterations at the end with the minimum."""
        if not self.num_last_epochs:
            return 0
        end = runner.max_epochs or self.num_last_epochs
        return self._iters_until(runner, end) - self._iters_until(
            runner, end - self.num_last_epochs
        )
