"""The learning rate policies that decay by a formula."""

from __future__ import annotations

from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_number
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.hooks.policies import Exp, Fixed, Inv, Poly, Step
from lightning_hooks.registry import HOOKS

__all__ = [
    "ExpLrUpdaterHook",
    "FixedLrUpdaterHook",
    "InvLrUpdaterHook",
    "PolyLrUpdaterHook",
    "StepLrUpdaterHook",
]


@HOOKS.register_module()
class FixedLrUpdaterHook(Fixed, LrUpdaterHook):
    """Keeps the rate: :func:`~lightning_hooks.schedules.fixed`, for a warm-up on its own.

    Args:
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.
    """


@HOOKS.register_module()
class StepLrUpdaterHook(Step, LrUpdaterHook):
    """Decays the rate at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_lr)``, where ``k`` is the number of milestones behind.

    Args:
        step: Every how many epochs (iterations, with ``by_epoch=False``), or a list of milestones.
        gamma: The factor at each.
        min_lr: What the rate does not fall below.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive, a factor or a minimum below 0.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    at_once = property(lambda self: self.min_lr is None)  # else each is compared with it

    def __init__(
        self,
        step: int | list[int],
        gamma: float = 0.1,
        min_lr: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(step, gamma, **kwargs)
        if min_lr is not None:
            check_number("min_lr", min_lr, least=0)
        self.min_lr = min_lr

    # what is inherited, by the name it has here, as below: asked for in every iteration
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.step`."""
        return schedules.step(base, position, step=self.step, gamma=self.gamma, minimum=self.min_lr)


@HOOKS.register_module()
class ExpLrUpdaterHook(Exp, LrUpdaterHook):
    """Decays the rate every time: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        TypeError: for what is no number.
        ValueError: for a number below 0.
    """

    at_once = True


@HOOKS.register_module()
class PolyLrUpdaterHook(Poly, LrUpdaterHook):
    """Decays the rate by a power of what is left: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_lr: The rate at the end.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        TypeError: for what is no number.
        ValueError: for a number below 0.
    """

    at_once = True

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        super().__init__(power, **kwargs)
        check_number("min_lr", min_lr, least=0)
        self.min_lr = min_lr

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.poly`."""
        return schedules.poly(base, position, total, power=self.power, minimum=self.min_lr)


@HOOKS.register_module()
class InvLrUpdaterHook(Inv, LrUpdaterHook):
    """Decays the rate hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: How fast.
        power: The exponent.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        TypeError: for what is no number.
        ValueError: for a number below 0.
    """

    at_once = True
