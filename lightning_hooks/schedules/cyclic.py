"""Policies of several phases: cycles, and one cycle."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

from lightning_hooks.schedules.anneal import annealing_cos, annealing_linear

__all__ = ["cyclic", "one_cycle", "one_cycle_momentum"]

ANNEALINGS: dict[str, Callable[[float, float, float], float]] = {
    "cos": annealing_cos,
    "linear": annealing_linear,
}
"""The curves between two values, by mmcv's names."""


def cyclic(
    base: float,
    position: int,
    total: int,
    *,
    target_ratio: tuple[float, float] = (10, 1e-4),
    cyclic_times: int = 1,
    step_ratio_up: float = 0.4,
    anneal_strategy: str = "cos",
    gamma: float = 1.0,
) -> float:
    """Go to a first multiple of the base and on to a second, in repeated cycles.

    With ``g = gamma**cycle``, a cycle goes from ``base`` to ``base * (1 - g + g * ratio[0])`` and
    on to ``base * ratio[1]``. A cycle has ``total // cyclic_times`` iterations; a share
    ``step_ratio_up`` leads to the first target. Without this part a cycle starts at
    ``base * ratio[0]`` and goes to ``base * (1 - g + g * ratio[1])``.

    Args:
        base: The value at the start.
        position: Iterations done.
        total: Iterations to do, at least ``cyclic_times``.
        target_ratio: The two targets as ratios of ``base``.
        cyclic_times: The number of cycles; a remainder of the run begins another cycle.
        step_ratio_up: The share of a cycle, in [0, 1), until the first target.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        gamma: The factor of the first target's distance to ``base`` from cycle to cycle.

    >>> [round(cyclic(1.0, t, 10, target_ratio=(10, 0.1), cyclic_times=2, gamma=0.5), 3)
    ...  for t in range(10)]
    [1.0, 5.5, 10.0, 7.525, 2.575, 1.0, 3.25, 5.5, 4.15, 1.45]
    """
    length = total // cyclic_times
    up, now = floor(step_ratio_up * length), position % length
    if not now and position == total:  # the end of the last cycle, not the start of another
        now = length
    first, last = target_ratio
    # mmcv's order of operations: the last bit depends on it
    if gamma != 1.0:
        scale = gamma ** ((position - now) // length)
        if up:
            first = 1 - scale + first * scale
        else:
            last = 1 - scale + last * scale
    if now < up:
        start, end, factor = base, base * first, now / up
    else:
        start, end, factor = base * first, base * last, (now - up) / (length - up)
    return ANNEALINGS[anneal_strategy](start, end, factor)


def one_cycle_ends(total: int, pct_start: float, three_phase: bool) -> tuple[float, ...]:
    """Return the last positions of the phases of one cycle.

    >>> one_cycle_ends(10, 0.3, False), one_cycle_ends(10, 0.3, True)
    ((2.0, 9), (2.0, 4.0, 9))
    """
    up = float(pct_start * total) - 1
    if three_phase:
        return up, float(2 * pct_start * total) - 2, total - 1
    return up, total - 1


def _in_phases(
    position: int,
    ends: tuple[float, ...],
    base: float,
    ratios: tuple[float, ...],
    anneal_strategy: str,
) -> float:
    """Return the value at a position, in phases between consecutive ratios of the base."""
    phase = next((i for i, end in enumerate(ends) if position <= end), len(ends) - 1)
    begin, end = ends[phase - 1] if phase else 0, ends[phase]
    # past the end, or in a phase without length: the phase is over
    factor = 1 if position >= end else (position - begin) / (end - begin)
    return ANNEALINGS[anneal_strategy](base * ratios[phase], base * ratios[phase + 1], factor)


def one_cycle(
    base: float,
    position: int,
    total: int,
    *,
    pct_start: float = 0.3,
    anneal_strategy: str = "cos",
    div_factor: float = 25,
    final_div_factor: float = 1e4,
    three_phase: bool = False,
) -> float:
    """Go up to ``base * div_factor`` and down to ``base / final_div_factor``, once.

    Args:
        base: The value at the start.
        position: Iterations done.
        total: Iterations to do.
        pct_start: The share of the iterations on the way up.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        div_factor: The peak as a multiple of ``base``.
        final_div_factor: The divisor of ``base`` at the end.
        three_phase: Return to ``base`` as fast as on the way up, then go to the end.

    >>> [round(one_cycle(0.04, t, 10), 3) for t in range(10)]
    [0.04, 0.52, 1.0, 0.95, 0.812, 0.611, 0.389, 0.188, 0.05, 0.0]
    """
    ends = one_cycle_ends(total, pct_start, three_phase)
    last = 1 / final_div_factor
    ratios = (1, div_factor, 1, last) if three_phase else (1, div_factor, last)
    return _in_phases(position, ends, base, ratios, anneal_strategy)


def one_cycle_momentum(
    bounds: tuple[float, float],
    position: int,
    total: int,
    *,
    pct_start: float = 0.3,
    anneal_strategy: str = "cos",
    three_phase: bool = False,
) -> float:
    """Go from the higher of two bounds down to the lower and back, while :func:`one_cycle` goes up.

    Args:
        bounds: The higher and the lower value.
        position: Iterations done.
        total: Iterations to do.
        pct_start: The share of the iterations on the way down.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        three_phase: Return as fast as on the way down, then stay.

    >>> [round(one_cycle_momentum((0.95, 0.85), t, 10), 3) for t in range(10)]
    [0.95, 0.9, 0.85, 0.855, 0.869, 0.889, 0.911, 0.931, 0.945, 0.95]
    """
    high, low = bounds
    ends = one_cycle_ends(total, pct_start, three_phase)
    ratios = (high, low, high, high) if three_phase else (high, low, high)
    return _in_phases(position, ends, 1, ratios, anneal_strategy)
