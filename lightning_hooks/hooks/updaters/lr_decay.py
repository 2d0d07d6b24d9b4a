"""The learning rate policies that decay by a formula.

The learning rate policy of several stages, each with a rate of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.policies import Exp, Fixed, Inv, Poly, Step, is_int
from lightning_hooks.schedules import checks
from lightning_hooks.utils.arguments import LARGEST, check_number, check_numbers

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
    """Keeps the rate: :func:`~lightning_hooks.schedules.fixed`, for a warm-up on its own.

    Args:
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.
    """


@HOOKS.register_module()
class StepLrUpdaterHook(Step, LrUpdaterHook):
    """Decays the rate at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_lr)``, where ``k`` is the number of milestones behind.

    Args:
        step: Every how many epochs (iterations, with ``by_epoch=False``), or a list of milestones.
        gamma: The factor at each.
        min_lr: What the rate does not fall below.
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

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
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

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
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

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
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for what is no number.
        ValueError: for a number below 0.
    """

    at_once = True


@HOOKS.register_module()
class MultiStageLrUpdaterHook(LrUpdaterHook):
    """Starts each stage from a rate of its own: :func:`~lightning_hooks.schedules.multi_stage`.

    The groups' own rates do not matter once the first stage has begun.

    Args:
        milestone_lrs: The rate of each stage.
        milestone_iters: The epoch (iteration, with ``by_epoch=False``) at which each begins.
        steps: For each stage, its milestones, counted from the start of the run; or every how many.
        gammas: The factor at the milestones of each.
        kwargs: Those of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

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
        lengths = {name: len(one) for name, one in lists.items()}
        if len(set(lengths.values())) > 1 or not milestone_lrs:
            raise ValueError(f"one of each is needed for every stage, got {lengths}")
        for step in steps:
            numbers = step if isinstance(step, (list, tuple)) else [step]
            if not all(map(is_int, numbers)):
                raise TypeError(f"steps must be ints or lists of ints, got {steps!r}")
            if not all(0 < number <= LARGEST for number in numbers):
                raise ValueError(f"steps must be positive, got {steps!r}")
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
        """Look for stages that are never reached."""
        return checks.check_step(self.milestone_iters, total)
