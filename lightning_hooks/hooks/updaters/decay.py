"""Policies that decay by a formula or in stages, for learning rates and for momenta.

A policy for both is written once, as a function: the method ``_value`` of two hooks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.updater import Updater
from lightning_hooks.utils.arguments import LARGEST, check_number, check_numbers, shown

__all__ = [
    "ExpLrUpdaterHook",
    "ExpMomentumUpdaterHook",
    "FixedLrUpdaterHook",
    "FixedMomentumUpdaterHook",
    "InvLrUpdaterHook",
    "InvMomentumUpdaterHook",
    "MultiStageLrUpdaterHook",
    "PolyLrUpdaterHook",
    "PolyMomentumUpdaterHook",
    "StepLrUpdaterHook",
    "StepMomentumUpdaterHook",
]


# -- fixed -------------------------------------------------------------------------------------


def fixed(self: Updater, base: float, position: int, total: int | None) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.fixed`."""
    return base


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """Keeps the rate, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.
    """

    _value = fixed
    _is_constant = True


@HOOKS.register_module()
class FixedMomentumUpdaterHook(MomentumUpdaterHook):
    """Keeps the momentum, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    _value = fixed
    _is_constant = True


# -- step --------------------------------------------------------------------------------------


def step(
    self: StepLrUpdaterHook | StepMomentumUpdaterHook, base: float, position: int, total: int | None
) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.step` for a hook's arguments."""
    return schedules.step(base, position, step=self.step, gamma=self.gamma, minimum=self._minimum)


def check_milestones(name: str, step: Any) -> None:
    """Check an interval or a list of milestones.

    Raises:
        TypeError: unless ``step`` is an int or a list of ints.
        ValueError: unless all are positive.
    """
    milestones = step if isinstance(step, (list, tuple)) else [step]
    if not all(type(milestone) is int for milestone in milestones):
        raise TypeError(f"{name} must be an int or a list of ints, got {shown(step)}")
    if not all(0 < milestone <= LARGEST for milestone in milestones):
        raise ValueError(f"{name} must be positive, got {shown(step)}")


@HOOKS.register_module()
class StepLrUpdaterHook(LrUpdaterHook):
    """Decays the rate at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_lr)``, where ``k`` is the number of milestones passed.

    Args:
        step: Epochs (iterations, with ``by_epoch=False``) between decays, or a list of milestones.
        gamma: The factor at each milestone.
        min_lr: The lowest rate; None for no bound.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive, a factor or a minimum below 0.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    _value = step

    def __init__(
        self, step: int | list[int], gamma: float = 0.1, min_lr: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_milestones("step", step)
        self.step, self._is_constant = step, not step
        self.gamma = check_number("gamma", gamma, least=0)
        self.min_lr = None if min_lr is None else check_number("min_lr", min_lr, least=0)


@HOOKS.register_module()
class StepMomentumUpdaterHook(MomentumUpdaterHook):
    """Decays the momentum at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_momentum)``, where ``k`` is the number of milestones passed.

    Args:
        step: Epochs (iterations, with ``by_epoch=False``) between decays, or a list of milestones.
        gamma: The factor at each milestone.
        min_momentum: The lowest momentum; None for no bound.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive, a factor or a minimum below 0.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    _value = step

    def __init__(
        self,
        step: int | list[int],
        gamma: float = 0.5,
        min_momentum: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_milestones("step", step)
        self.step, self._is_constant = step, not step
        self.gamma = check_number("gamma", gamma, least=0)
        if min_momentum is not None:
            check_number("min_momentum", min_momentum, least=0)
        self.min_momentum = min_momentum


# -- exp ---------------------------------------------------------------------------------------


def exp(
    self: ExpLrUpdaterHook | ExpMomentumUpdaterHook, base: float, position: int, total: int | None
) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.exp` for a hook's arguments."""
    return schedules.exp(base, position, gamma=self.gamma)


@HOOKS.register_module()
class ExpLrUpdaterHook(LrUpdaterHook):
    """Decays the rate every epoch or iteration: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """

    _value = exp

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = check_number("gamma", gamma, least=0)


@HOOKS.register_module()
class ExpMomentumUpdaterHook(MomentumUpdaterHook):
    """Decays the momentum every epoch or iteration: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    _value = exp

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = check_number("gamma", gamma, least=0)


# -- poly --------------------------------------------------------------------------------------


def poly(
    self: PolyLrUpdaterHook | PolyMomentumUpdaterHook, base: float, position: int, total: int
) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.poly` for a hook's arguments."""
    return schedules.poly(base, position, total, power=self.power, minimum=self._minimum)


@HOOKS.register_module()
class PolyLrUpdaterHook(LrUpdaterHook):
    """Decays the rate by a power of the rest of the run: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_lr: The rate at the end.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """

    _value, _needs_length = poly, True

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = check_number("power", power, least=0)
        self.min_lr = check_number("min_lr", min_lr, least=0)


@HOOKS.register_module()
class PolyMomentumUpdaterHook(MomentumUpdaterHook):
    """Decays the momentum by a power of the rest of the run.

    See :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_momentum: The momentum at the end.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    _value, _needs_length = poly, True

    def __init__(self, power: float = 1.0, min_momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = check_number("power", power, least=0)
        self.min_momentum = check_number("min_momentum", min_momentum)


# -- inv ---------------------------------------------------------------------------------------


def inv(
    self: InvLrUpdaterHook | InvMomentumUpdaterHook, base: float, position: int, total: int | None
) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.inv` for a hook's arguments."""
    return schedules.inv(base, position, gamma=self.gamma, power=self.power)


@HOOKS.register_module()
class InvLrUpdaterHook(LrUpdaterHook):
    """Decays the rate hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: The speed of the decay.
        power: The exponent.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """

    _value = inv

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = check_number("gamma", gamma, least=0)
        self.power = check_number("power", power, least=0)


@HOOKS.register_module()
class InvMomentumUpdaterHook(MomentumUpdaterHook):
    """Decays the momentum hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: The speed of the decay.
        power: The exponent.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    _value = inv

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = check_number("gamma", gamma, least=0)
        self.power = check_number("power", power, least=0)


# -- stages ------------------------------------------------------------------------------------


@HOOKS.register_module()
class MultiStageLrUpdaterHook(LrUpdaterHook):
    """Starts each stage from its own rate: :func:`~lightning_hooks.schedules.multi_stage`.

    The groups' own rates are used before the first stage only.

    Args:
        milestone_lrs: The rate of each stage.
        milestone_iters: The first epoch (iteration, with ``by_epoch=False``) of each stage.
        steps: For each stage, an interval or milestones, counted from the start of the run.
        gammas: For each stage, the factor at its milestones.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for lists of different lengths, starts that do not rise, or a step below 1.
        TypeError: for a step or a start that is no int.

    Source: mmflow's ``MultiStageLrUpdaterHook``.
    """

    def __init__(
        self,
        milestone_lrs: Sequence[float],
        milestone_iters: Sequence[int],
        steps: Sequence[int | list[int]],
        gammas: Sequence[float],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        lists: dict[str, Sequence[Any]] = {
            "milestone_lrs": milestone_lrs,
            "milestone_iters": milestone_iters,
            "steps": steps,
            "gammas": gammas,
        }
        for name in ("milestone_lrs", "milestone_iters", "gammas"):
            check_numbers(name, lists[name])
        if not isinstance(steps, (list, tuple)):
            raise TypeError(f"steps must be a list of ints or lists of ints, got {shown(steps)}")
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1 or not milestone_lrs:
            raise ValueError(f"every stage must have one value in each list, got {shown(lengths)}")
        for i, step in enumerate(steps):
            check_milestones(f"steps[{i}]", step)
        if not all(type(start) is int for start in milestone_iters):
            raise TypeError(f"milestone_iters must be ints, got {shown(milestone_iters)}")
        if any(a >= b for a, b in itertools.pairwise(milestone_iters)):
            raise ValueError(f"milestone_iters must rise, got {shown(milestone_iters)}")
        self.milestone_lrs = milestone_lrs
        self.milestone_iters = milestone_iters
        self.steps = steps
        self.gammas = gammas

    def _value(self, base: float, position: int, total: int | None) -> float:
        """Return :func:`~lightning_hooks.schedules.multi_stage`."""
        return schedules.multi_stage(
            base,
            position,
            values=self.milestone_lrs,
            starts=self.milestone_iters,
            steps=self.steps,
            gammas=self.gammas,
        )
