"""Policies that decay by a formula: fixed, step, exp, poly, inv, REX, and stages of steps."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

__all__ = ["exp", "fixed", "inv", "multi_stage", "poly", "rex", "step"]


def fixed(base: float, position: int, total: int | None = None) -> float:
    """Stay at ``base``.

    >>> fixed(0.1, 7)
    0.1
    """
    return base


def step(
    base: float,
    position: int,
    total: int | None = None,
    *,
    step: int | Sequence[int],
    gamma: float = 0.1,
    minimum: float | None = None,
) -> float:
    """Decay by ``gamma`` at milestones: ``max(base * gamma**k, minimum)``.

    ``k`` is the number of milestones passed, ``position // step`` for a regular step.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Not used.
        step: The interval between decays, or the milestones in rising order.
        gamma: The factor at each milestone.
        minimum: The lowest value; None for no bound.

    >>> [step(1.0, epoch, step=[2, 3], gamma=0.5) for epoch in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """
    if isinstance(step, int):
        passed = position // step
    else:
        passed = 0
        for milestone in step:
            if position < milestone:
                break
            passed += 1
    value: float = base * gamma**passed
    return value if minimum is None else max(value, minimum)


def exp(base: float, position: int, total: int | None = None, *, gamma: float) -> float:
    """Decay by ``gamma`` every epoch or iteration: ``base * gamma**position``.

    >>> exp(1.0, 3, gamma=0.5)
    0.125
    """
    value: float = base * gamma**position
    return value


def poly(
    base: float, position: int, total: int, *, power: float = 1.0, minimum: float = 0.0
) -> float:
    """Decay to ``minimum``: ``(base - minimum) * (1 - position / total)**power + minimum``.

    >>> [poly(1.0, epoch, 4) for epoch in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    rest: float = (1 - position / total) ** power
    return (base - minimum) * rest + minimum


def inv(
    base: float, position: int, total: int | None = None, *, gamma: float, power: float = 1.0
) -> float:
    """Decay hyperbolically: ``base * (1 + gamma * position)**-power``.

    >>> [inv(1.0, epoch, gamma=1.0) for epoch in (0, 1, 3)]
    [1.0, 0.5, 0.25]
    """
    value: float = base * (1 + gamma * position) ** (-power)
    return value


def rex(
    base: float,
    position: int,
    total: int,
    *,
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Decay slowly at first and fast at the end: REX, "reflected exponential".

    With ``s = position / total``: ``end + (base - end) * (1 - s) / (1 - s / 2)``.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do.
        minimum: The value at the end.
        ratio: The minimum as a ratio of ``base``, instead of ``minimum``.

    Source: Chen, Wolfe, Kyrillidis, "REX: Revisiting Budgeted Training with an Improved Schedule"
    (https://arxiv.org/abs/2107.04197).

    >>> [round(rex(1.0, t, 4), 4) for t in range(5)]
    [1.0, 0.8571, 0.6667, 0.4, 0.0]
    """
    end = minimum if ratio is None else base * ratio
    share = position / total
    return end + (base - end) * (1 - share) / (1 - share / 2)


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
    """Decay from each stage's first value: :func:`~lightning_hooks.schedules.step` in each stage.

    Args:
        base: The value before the first stage.
        position: Epochs or iterations done.
        total: Not used.
        values: The value at the start of each stage.
        starts: The first position of each stage, in rising order.
        steps: The milestones of each stage, counted from the start of the run like ``position``.
        gammas: The factor at the milestones of each stage.

    >>> two = dict(values=[1.0, 0.3], starts=[0, 4], steps=[[2], [5, 6]], gammas=[0.1, 0.5])
    >>> [multi_stage(9.0, t, **two) for t in range(8)]
    [1.0, 1.0, 0.1, 0.1, 0.3, 0.15, 0.075, 0.075]
    """
    stage = bisect(starts, position) - 1
    if stage < 0:
        return base
    return step(values[stage], position, step=steps[stage], gamma=gammas[stage])
