"""The learning rate policy that ends with a cool-down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_int, check_number
from lightning_hooks.hooks.lr_annealing import AnnealingLr
from lightning_hooks.registry import HOOKS

__all__ = ["CosineAnnealingCooldownLrUpdaterHook"]


@HOOKS.register_module()
class CosineAnnealingCooldownLrUpdaterHook(AnnealingLr):
    """Anneals the rate, then cools it down: :func:`~lightning_hooks.schedules.cosine_cooldown`.

    Args:
        min_lr: The rate towards which the cosine goes; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        cool_down_ratio: The rate at the end, as a ratio of that minimum.
        cool_down_time: How many epochs (iterations, with ``by_epoch=False``) before the end the
            cosine arrives.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: if both or neither minimum is given, and at the start of a run that is not
            longer than ``cool_down_time``.
        TypeError: for an argument of the wrong type.

    Source: mmcls' ``CosineAnnealingCooldownLrUpdaterHook``.
    """

    def __init__(
        self,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        cool_down_ratio: float = 0.1,
        cool_down_time: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        check_number("cool_down_ratio", cool_down_ratio)
        check_int("cool_down_time", cool_down_time, 0)
        self.cool_down_ratio = cool_down_ratio
        self.cool_down_time = cool_down_time

    def curve(self, base: float, position: int, total: int, **minimum: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.cosine_cooldown`."""
        return schedules.cosine_cooldown(
            base,
            position,
            total,
            cool_down_ratio=self.cool_down_ratio,
            cool_down_time=self.cool_down_time,
            **minimum,
        )

    def check(self, total: int) -> Iterator[str]:
        """Look for a run that is over before the cosine begins."""
        if self.cool_down_time >= total:
            raise ValueError(
                f"cool_down_time={self.cool_down_time} must be less than the run has: {total}"
            )
        yield from ()
