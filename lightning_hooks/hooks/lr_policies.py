"""The learning rate policies that decay by a formula, bound to the run's counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.registry import HOOKS

__all__ = [
    "ExpLrUpdaterHook",
    "FixedLrUpdaterHook",
    "InvLrUpdaterHook",
    "PolyLrUpdaterHook",
    "StepLrUpdaterHook",
]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """Keeps the rate: :func:`~lightning_hooks.schedules.fixed`, for a warm-up on its own.

    Args:
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.fixed` as it is now."""
        return partial(schedules.fixed, position=self._position(runner))


@HOOKS.register_module()
class StepLrUpdaterHook(LrUpdaterHook):
    """Decays the rate at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_lr)``, where ``k`` is the number of milestones behind.

    Args:
        step: Every how many epochs (iterations, with ``by_epoch=False``), or a list of milestones.
        gamma: The factor at each.
        min_lr: What the rate does not fall below.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    def __init__(
        self,
        step: int | list[int],
        gamma: float = 0.1,
        min_lr: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        milestones: Any = list(step) if isinstance(step, (list, tuple)) else [step]
        if not all(_is_int(one) for one in milestones):
            raise TypeError(f"step must be an int or a list of ints, got {step!r}")
        if not all(one > 0 for one in milestones):
            raise ValueError(f"step must be positive, got {step!r}")
        self.step = step
        self.gamma = gamma
        self.min_lr = min_lr

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.step` as it is now."""
        return partial(
            schedules.step,
            position=self._position(runner),
            step=self.step,
            gamma=self.gamma,
            minimum=self.min_lr,
        )


@HOOKS.register_module()
class ExpLrUpdaterHook(LrUpdaterHook):
    """Decays the rate every time: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.
    """

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.exp` as it is now."""
        return partial(schedules.exp, position=self._position(runner), gamma=self.gamma)


@HOOKS.register_module()
class PolyLrUpdaterHook(LrUpdaterHook):
    """Decays the rate by a power of what is left: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_lr: The rate at the end.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.
    """

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = power
        self.min_lr = min_lr

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.poly` as it is now."""
        return partial(
            schedules.poly,
            position=self._position(runner),
            total=self._total(runner),
            power=self.power,
            minimum=self.min_lr,
        )


@HOOKS.register_module()
class InvLrUpdaterHook(LrUpdaterHook):
    """Decays the rate hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: How fast.
        power: The exponent.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.
    """

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma
        self.power = power

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.inv` as it is now."""
        return partial(
            schedules.inv, position=self._position(runner), gamma=self.gamma, power=self.power
        )
