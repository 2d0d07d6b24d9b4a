"""The learning rate policies that anneal towards a minimum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_numbers
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.hooks.policies import Annealing, either
from lightning_hooks.registry import HOOKS
from lightning_hooks.schedules import checks

__all__ = [
    "AnnealingLr",
    "CosineAnnealingLrUpdaterHook",
    "CosineRestartLrUpdaterHook",
    "FlatCosineAnnealingLrUpdaterHook",
    "LinearAnnealingLrUpdaterHook",
]


class AnnealingLr(Annealing, LrUpdaterHook):
    """What they share: the minimum, given as a rate or as a ratio of the base."""

    def __init__(
        self,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        either("min_lr", min_lr, min_lr_ratio)
        self.min_lr = min_lr
        self.min_lr_ratio = min_lr_ratio

    def value(self, base: float, position: int, total: Any) -> float:
        """Return the curve's value."""
        # what is inherited, by the names it has here: this is asked for in every iteration
        return self.curve(base, position, total, minimum=self.min_lr, ratio=self.min_lr_ratio)


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(AnnealingLr):
    """Anneals the rate along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    at_once = True
    curve = staticmethod(schedules.cosine)


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(AnnealingLr):
    """Anneals the rate along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    at_once = True
    curve = staticmethod(schedules.linear)


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(AnnealingLr):
    """Keeps the rate, then anneals it: :func:`~lightning_hooks.schedules.flat_cosine`.

    Args:
        start_percent: The share of the run, in [0, 1], after which it begins to anneal.
        min_lr: The rate towards which it goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a share outside [0, 1], or if both or neither minimum is given.
    """

    at_once = True

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        self.start_percent = checks.check_share("start_percent", start_percent)

    def curve(self, base: float, position: int, total: int, **minimum: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.flat_cosine`."""
        return schedules.flat_cosine(base, position, total, start=self.start_percent, **minimum)


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(AnnealingLr):
    """Anneals the rate again and again: :func:`~lightning_hooks.schedules.cosine_restart`.

    Args:
        periods: The length of each period; together, that of the run.
        restart_weights: For each, the share of the base rate from which it starts.
        min_lr: The rate towards which each goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if there is not one weight for each period, or both or neither minimum is given.
    """

    at_once = True
    needs_length = False

    def __init__(
        self,
        periods: list[int],
        restart_weights: Sequence[float] = (1,),
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        check_numbers("periods", periods)
        check_numbers("restart_weights", restart_weights)
        if len(periods) != len(restart_weights):
            raise ValueError(
                "periods and restart_weights must have the same length, "
                f"got {periods!r} and {restart_weights!r}"
            )
        if not all(period > 0 for period in periods):
            raise ValueError(f"periods must be positive, got {periods!r}")
        self.periods = periods
        self.restart_weights = restart_weights

    @property
    def cumulative_periods(self) -> list[int]:
        """Where each period ends."""
        return list(accumulate(self.periods))

    def curve(self, base: float, position: int, total: int, **minimum: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.cosine_restart`."""
        return schedules.cosine_restart(
            base, position, periods=self.periods, weights=self.restart_weights, **minimum
        )

    def check(self, total: int) -> Iterator[str]:
        """Look for periods that do not add up to the run."""
        return checks.check_periods(self.periods, total)
