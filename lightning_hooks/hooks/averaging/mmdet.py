"""mmdetection's EMA hooks: buffers are averaged too, the momentum may be any function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.base import AveragingHook, check_momentum
from lightning_hooks.schedules.averages import exp_momentum, linear_momentum, over_interval
from lightning_hooks.utils.arguments import check_bool, check_function, check_int

__all__ = ["BaseEMAHook", "ExpMomentumEMAHook", "LinearMomentumEMAHook"]


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
        options: ``begin_iter``, ``begin_epoch``, ``swap``, ``check``, ``device`` and ``precise_bn``
            of :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for a strategy that flattens
            or partitions the parameters (FSDP, DeepSpeed).

    Source: mmdetection's ``BaseEMAHook``.

    Note:
        Departures from mmdetection: optimizer steps are counted, not batches; the update is a
        lerp; a step to NaN is left out; integer buffers are always the model's (in mmdetection
        the average keeps the integers of the start of the run); after the run the model holds the
        raw weights; the average is no buffer of the model.
    """

    momentum = 0.0002
    momentum_fun: Callable[[int], float] | None = None
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
            raise TypeError(
                f"{type(self).__name__} has no buffers={options['buffers']!r}: "
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
        rule = self._rule if self.momentum_fun is None else self.momentum_fun
        return rule(self.steps)

    def _rule(self, step: int) -> float:
        return self.momentum


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

    total_iter = 2000
    distinguishing = ("momentum", "interval", "total_iter")

    def __init__(self, total_iter: int = 2000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_int("total_iter", total_iter, 1)
        self.total_iter = total_iter

    def _rule(self, step: int) -> float:
        return exp_momentum(step, self.momentum, self.total_iter)


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

    warm_up = 100
    distinguishing = ("momentum", "interval", "warm_up")

    def __init__(self, warm_up: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_int("warm_up", warm_up, 0)
        self.warm_up = warm_up

    def _rule(self, step: int) -> float:
        return linear_momentum(step, over_interval(self.momentum, self.interval), self.warm_up)
