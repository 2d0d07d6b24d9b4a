"""The learning rate policies that decay by a formula, or in stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.policies import (
    Exp,
    Fixed,
    Inv,
    Poly,
    Step,
    check_milestones,
    is_int,
)
from lightning_hooks.schedules import checks
from lightning_hooks.utils.arguments import check_numbers

__all__ = [
    "ExpLrUpdaterHook",
    "FixedLrUpdaterHook",
    "InvLrUpdaterHook",
    "MultiStageLrUpdaterHook",
    "PolyLrUpdaterHook",
    "StepLrUpdaterHook",
]


@HOOKS.register_module()
class FixedLrUpdaterHook(Fixed, LrUpdaterHook):
    """Keeps the rate, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.
    """


@HOOKS.register_module()
class StepLrUpdaterHook(Step, LrUpdaterHook):
    """Decays the rate at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_lr)``, where ``k`` is the number of milestones passed.

    Args:
        step: Epochs (iterations, with ``by_epoch=False``) between decays, or a list of milestones.
        gamma: The factor at each.
        min_lr: The lowest rate.
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
class PolyLrUpdaterHook(Poly, LrUpdaterHook):
    """Decays the rate by a power of what is left: :func:`~lightning_hooks.schedules.poly`.

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
class MultiStageLrUpdaterHook(LrUpdaterHook):
    """Starts each stage from a rate of its own: :func:`~lightning_hooks.schedules.multi_stage`.

    The groups' own rates are used before the first stage only.

    Args:
        milestone_lrs: The rate of each stage.
        milestone_iters: The epoch (iteration, with ``by_epoch=False``) at which each begins.
        steps: For each stage, its milestones, counted from the start of the run; or an interval.
        gammas: The factor at the milestones of each.
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
        if not all(map(is_int, milestone_iters)):
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

    def check(self, total: int) -> Iterator[str]:
        """Yield stages that are never reached."""
        return checks.check_step(self.milestone_iters, total)
