"""The learning rate policy of several stages, each with a rate of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import LARGEST, check_numbers
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.hooks.policies import is_int
from lightning_hooks.registry import HOOKS
from lightning_hooks.schedules import checks

__all__ = ["MultiStageLrUpdaterHook"]


@HOOKS.register_module()
class MultiStageLrUpdaterHook(LrUpdaterHook):
    """Starts each stage from a rate of its own: :func:`~lightning_hooks.schedules.multi_stage`.

    The groups' own rates do not matter once the first stage has begun.

    Args:
        milestone_lrs: The rate of each stage.
        milestone_iters: The epoch (iteration, with ``by_epoch=False``) at which each begins.
        steps: For each stage, its milestones, counted from the start of the run; or every how many.
        gammas: The factor at the milestones of each.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

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
