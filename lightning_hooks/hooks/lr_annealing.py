"""The learning rate policies that anneal towards a minimum, bound to the run's counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.registry import HOOKS

__all__ = [
    "CosineAnnealingLrUpdaterHook",
    "CosineRestartLrUpdaterHook",
    "FlatCosineAnnealingLrUpdaterHook",
    "LinearAnnealingLrUpdaterHook",
]


class _Annealing(LrUpdaterHook):
    """What they share: the minimum, given as a rate or as a ratio of the base rate."""

    def __init__(
        self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if (min_lr is None) == (min_lr_ratio is None):
            raise ValueError(
                f"give either min_lr or min_lr_ratio, got min_lr={min_lr!r} and "
                f"min_lr_ratio={min_lr_ratio!r}"
            )
        self.min_lr = min_lr
        self.min_lr_ratio = min_lr_ratio

    def _bind(self, schedule: Any, runner: Any, **arguments: Any) -> Callable[[float], float]:
        return partial(
            schedule,
            position=self._position(runner),
            minimum=self.min_lr,
            ratio=self.min_lr_ratio,
            **arguments,
        )


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(_Annealing):
    """Anneals the rate along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.cosine` as it is now."""
        return self._bind(schedules.cosine, runner, total=self._total(runner))


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(_Annealing):
    """Anneals the rate along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.linear` as it is now."""
        return self._bind(schedules.linear, runner, total=self._total(runner))


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(_Annealing):
    """Keeps the rate, then anneals it: :func:`~lightning_hooks.schedules.flat_cosine`.

    Args:
        start_percent: The share of the run, in [0, 1), after which it begins to anneal.
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a share outside [0, 1], or if both or neither minimum is given.
    """

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        if not 0 <= start_percent <= 1:
            raise ValueError(f"start_percent must be between 0 and 1, got {start_percent!r}")
        self.start_percent = start_percent

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.flat_cosine` as it is now."""
        return self._bind(
            schedules.flat_cosine, runner, total=self._total(runner), start=self.start_percent
        )


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(_Annealing):
    """Anneals the rate again and again: :func:`~lightning_hooks.schedules.cosine_restart`.

    Args:
        periods: The length of each period.
        restart_weights: For each, the share of the base rate from which it starts.
        min_lr: The rate towards which each goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if there is not one weight for each period, or both or neither minimum is given.
    """

    def __init__(
        self,
        periods: list[int],
        restart_weights: Sequence[float] = (1,),
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        if len(periods) != len(restart_weights):
            raise ValueError(
                "periods and restart_weights must have the same length, "
                f"got {periods!r} and {restart_weights!r}"
            )
        self.periods = periods
        self.restart_weights = restart_weights

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return :func:`~lightning_hooks.schedules.cosine_restart` as it is now."""
        return self._bind(
            schedules.cosine_restart, runner, periods=self.periods, weights=self.restart_weights
        )
