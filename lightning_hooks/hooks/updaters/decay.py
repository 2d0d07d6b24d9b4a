"""Policies that decay by a formula or in stages, for learning rates and for momenta."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.param_groups import elementwise
from lightning_hooks.hooks.updaters.updater import Updater
from lightning_hooks.utils.arguments import LARGEST, check_number, check_numbers

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


class Fixed(Updater):
    """The policy of :func:`~lightning_hooks.schedules.fixed`."""

    is_constant = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def value(self, base: float, position: int, total: Any) -> float:
        """Return the base."""
        return base


@HOOKS.register_module()
class FixedLrUpdaterHook(Fixed, LrUpdaterHook):
    """Keeps the rate, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.
    """


@HOOKS.register_module()
class FixedMomentumUpdaterHook(Fixed, MomentumUpdaterHook):
    """Keeps the momentum, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


# -- step --------------------------------------------------------------------------------------


class Step(Updater):
    """The policy of :func:`~lightning_hooks.schedules.step`."""

    def __init__(
        self, step: int | list[int], gamma: float, minimum: float | None, /, **kwargs: Any
    ) -> None:
        check_milestones("step", step)
        check_number("gamma", gamma, least=0)
        if minimum is not None:
            check_number(f"min_{self.symbol}", minimum, least=self.least_minimum)
        super().__init__(**kwargs)
        self.step = step
        self.gamma = gamma
        self._minimum = minimum
        self.is_constant = step in ([], ())

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.step`."""
        return schedules.step(
            base, position, step=self.step, gamma=self.gamma, minimum=self._minimum
        )

    @property
    def takes_arrays(self) -> bool:
        """Whether ``value`` takes an array: only without a minimum to compare with."""
        return self._minimum is None and super().takes_arrays


def check_milestones(name: str, step: Any) -> None:
    """Check an interval or a list of milestones.

    Raises:
        TypeError: unless ``step`` is an int or a list of ints.
        ValueError: unless all are positive.
    """
    milestones = step if isinstance(step, (list, tuple)) else [step]
    if not all(type(one) is int for one in milestones):
        raise TypeError(f"{name} must be an int or a list of ints, got {step!r}")
    if not all(0 < one <= LARGEST for one in milestones):
        raise ValueError(f"{name} must be positive, got {step!r}")


@HOOKS.register_module()
class StepLrUpdaterHook(Step, LrUpdaterHook):
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

    def __init__(
        self, step: int | list[int], gamma: float = 0.1, min_lr: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(step, gamma, min_lr, **kwargs)


@HOOKS.register_module()
class StepMomentumUpdaterHook(Step, MomentumUpdaterHook):
    """Decays the momentum at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_momentum)``, where ``k`` is the number of milestones passed.

    Args:
        step: Epochs (iterations, with ``by_epoch=False``) between decays, or a list of milestones.
        gamma: The factor at each milestone.
        min_momentum: The lowest momentum; None for no bound.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

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
        super().__init__(step, gamma, min_momentum, **kwargs)


# -- exp ---------------------------------------------------------------------------------------


class Exp(Updater):
    """The policy of :func:`~lightning_hooks.schedules.exp`."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        self.gamma = gamma

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.exp`."""
        return schedules.exp(base, position, gamma=self.gamma)


@HOOKS.register_module()
class ExpLrUpdaterHook(Exp, LrUpdaterHook):
    """Decays the rate every epoch or iteration: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """


@HOOKS.register_module()
class ExpMomentumUpdaterHook(Exp, MomentumUpdaterHook):
    """Decays the momentum every epoch or iteration: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


# -- poly --------------------------------------------------------------------------------------


class Poly(Updater):
    """The policy of :func:`~lightning_hooks.schedules.poly`."""

    needs_length = True

    def __init__(self, power: float, minimum: float, /, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("power", power, least=0)
        check_number(f"min_{self.symbol}", minimum, least=self.least_minimum)
        self.power = power
        self._minimum = minimum

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.poly`."""
        return schedules.poly(base, position, total, power=self.power, minimum=self._minimum)


@HOOKS.register_module()
class PolyLrUpdaterHook(Poly, LrUpdaterHook):
    """Decays the rate by a power of the rest of the run: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_lr: The rate at the end.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        super().__init__(power, min_lr, **kwargs)


@HOOKS.register_module()
class PolyMomentumUpdaterHook(Poly, MomentumUpdaterHook):
    """Decays the momentum by a power of the rest of the run.

    See :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_momentum: The momentum at the end.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    def __init__(self, power: float = 1.0, min_momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(power, min_momentum, **kwargs)


# -- inv ---------------------------------------------------------------------------------------


class Inv(Updater):
    """The policy of :func:`~lightning_hooks.schedules.inv`."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        check_number("power", power, least=0)
        self.gamma = gamma
        self.power = power

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.inv`."""
        return schedules.inv(base, position, gamma=self.gamma, power=self.power)


@HOOKS.register_module()
class InvLrUpdaterHook(Inv, LrUpdaterHook):
    """Decays the rate hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: The speed of the decay.
        power: The exponent.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument that is not a number.
        ValueError: for a number below 0.
    """


@HOOKS.register_module()
class InvMomentumUpdaterHook(Inv, MomentumUpdaterHook):
    """Decays the momentum hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: The speed of the decay.
        power: The exponent.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


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
            raise TypeError(f"steps must be a list of ints or lists of ints, got {steps!r}")
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1 or not milestone_lrs:
            raise ValueError(f"every stage must have one value in each list, got {lengths}")
        for i, step in enumerate(steps):
            check_milestones(f"steps[{i}]", step)
        if not all(type(start) is int for start in milestone_iters):
            raise TypeError(f"milestone_iters must be ints, got {milestone_iters!r}")
        if any(a >= b for a, b in itertools.pairwise(milestone_iters)):
            raise ValueError(f"milestone_iters must rise, got {milestone_iters!r}")
        self.milestone_lrs = milestone_lrs
        self.milestone_iters = milestone_iters
        self.steps = steps
        self.gammas = gammas

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.multi_stage`."""
        return schedules.multi_stage(
            base,
            position,
            values=self.milestone_lrs,
            starts=self.milestone_iters,
            steps=self.steps,
            gammas=self.gammas,
        )
