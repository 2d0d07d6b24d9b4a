"""The policy of several stages, each of which decays from a value of its own."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

from lightning_hooks.schedules.decay import step

__all__ = ["multi_stage"]


def multi_stage(
    base: float,
    position: int,
    total: int | None = None,
    *,
    values: Sequence[float],
    starts: Sequence[int],
    steps: Sequence[int | Sequence[int]],
    gammas: Sequence[float],
) -> float:
    """Decay from the value of the stage: :func:`~lightning_hooks.schedules.step` in each.

    Args:
        base: The value before the first stage.
        position: Epochs or iterations done.
        total: Not looked at.
        values: The value of each stage.
        starts: Where each begins, in rising order.
        steps: The milestones of each, counted from the start of the run as ``position`` is.
        gammas: The factor at the milestones of each.

    >>> two = dict(values=[1.0, 0.3], starts=[0, 4], steps=[[2], [5, 6]], gammas=[0.1, 0.5])
    >>> [multi_stage(9.0, t, **two) for t in range(8)]
    [1.0, 1.0, 0.1, 0.1, 0.3, 0.15, 0.075, 0.075]
    """
    stage = bisect(starts, position) - 1
    if stage < 0:
        return base
    return step(values[stage], position, step=steps[stage], gamma=gammas[stage])
