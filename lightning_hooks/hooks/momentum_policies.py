"""The momentum policies that decay by a formula or anneal towards a minimum."""

from __future__ import annotations

from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_number
from lightning_hooks.hooks.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.policies import Annealing, Exp, Fixed, Inv, Poly, Step, either
from lightning_hooks.registry import HOOKS

__all__ = [
    "CosineAnnealingMomentumUpdaterHook",
    "ExpMomentumUpdaterHook",
    "FixedMomentumUpdaterHook",
    "InvMomentumUpdaterHook",
    "LinearAnnealingMomentumUpdaterHook",
    "PolyMomentumUpdaterHook",
    "StepMomentumUpdaterHook",
]


@HOOKS.register_module()
class FixedMomentumUpdaterHook(Fixed, MomentumUpdaterHook):
    """Keeps the momentum: :func:`~lightning_hooks.schedules.fixed`, for a warm-up on its own.

    Args:
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.
    """


@HOOKS.register_module()
class StepMomentumUpdaterHook(Step, MomentumUpdaterHook):
    """Decays the momentum at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_momentum)``, where ``k`` is the number of milestones behind.

    Args:
        step: Every how many epochs (iterations, with ``by_epoch=False``), or a list of milestones.
        gamma: The factor at each.
        min_momentum: What the momentum does not fall below.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    def __init__(
        self,
        step: int | list[int],
        gamma: float = 0.5,
        min_momentum: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(step, gamma, **kwargs)
        if min_momentum is not None:
            check_number("min_momentum", min_momentum)
        self.min_momentum = min_momentum


@HOOKS.register_module()
class ExpMomentumUpdaterHook(Exp, MomentumUpdaterHook):
    """Decays the momentum every time: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.
    """


@HOOKS.register_module()
class PolyMomentumUpdaterHook(Poly, MomentumUpdaterHook):
    """Decays the momentum by a power of what is left: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_momentum: The momentum at the end.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.
    """

    def __init__(self, power: float = 1.0, min_momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(power, **kwargs)
        check_number("min_momentum", min_momentum)
        self.min_momentum = min_momentum


@HOOKS.register_module()
class InvMomentumUpdaterHook(Inv, MomentumUpdaterHook):
    """Decays the momentum hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: How fast.
        power: The exponent.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.
    """


class AnnealingMomentum(Annealing, MomentumUpdaterHook):
    """What they share: the minimum, given as a momentum or as a ratio of the base."""

    def __init__(
        self,
        min_momentum: float | None = None,
        min_momentum_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        either("min_momentum", min_momentum, min_momentum_ratio)
        self.min_momentum = min_momentum
        self.min_momentum_ratio = min_momentum_ratio


@HOOKS.register_module()
class CosineAnnealingMomentumUpdaterHook(AnnealingMomentum):
    """Anneals the momentum along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_momentum: The momentum towards which it goes; give this or the ratio.
        min_momentum_ratio: The same as a ratio of each group's base momentum.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    curve = staticmethod(schedules.cosine)


@HOOKS.register_module()
class LinearAnnealingMomentumUpdaterHook(AnnealingMomentum):
    """Anneals the momentum along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_momentum: The momentum towards which it goes; give this or the ratio.
        min_momentum_ratio: The same as a ratio of each group's base momentum.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    curve = staticmethod(schedules.linear)
