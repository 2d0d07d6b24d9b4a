"""One cycle, for learning rates and for momenta."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_hooks.schedules.legs import Leg, along

__all__ = [
    "one_cycle",
    "one_cycle_ends",
    "one_cycle_leg",
    "one_cycle_momentum",
    "one_cycle_ratios",
]


def one_cycle_ends(total: int, pct_start: float, three_phase: bool) -> tuple[float, ...]:
    """Return the positions at which the phases of one cycle end.

    >>> one_cycle_ends(10, 0.3, False), one_cycle_ends(10, 0.3, True)
    ((2.0, 9), (2.0, 4.0, 9))
    """
    up = float(pct_start * total) - 1
    if three_phase:
        return up, float(2 * pct_start * total) - 2, total - 1
    return up, total - 1


def one_cycle_leg(
    position: int, total: int, *, pct_start: float, three_phase: bool, values: Sequence[float]
) -> Leg:
    """Return the leg of one cycle at a position: between two of the values, one for each turn.

    >>> one_cycle_leg(1, 10, pct_start=0.3, three_phase=False, values=(1, 25, 1e-4))
    (1, 25, 0.5)
    """
    ends = one_cycle_ends(total, pct_start, three_phase)
    phase = next((i for i, end in enumerate(ends) if position <= end), len(ends) - 1)
    begin, end = ends[phase - 1] if phase else 0, ends[phase]
    # past the end, or in a phase without length: the phase is over
    factor = 1 if position >= end else (position - begin) / (end - begin)
    return values[phase], values[phase + 1], factor


def one_cycle_ratios(
    div_factor: float, final_div_factor: float, three_phase: bool
) -> tuple[float, ...]:
    """Return the rates at the turns of one cycle, as ratios of the first.

    >>> one_cycle_ratios(25, 1e4, False)
    (1, 25, 0.0001)
    """
    last = 1 / final_div_factor
    return (1, div_factor, 1, last) if three_phase else (1, div_factor, last)


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
        pct_start: The share of them on the way up.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        div_factor: The peak as a multiple of ``base``.
        final_div_factor: What ``base`` is divided by at the end.
        three_phase: Come back to ``base`` as fast as it went up, and then go to the end.

    >>> [round(one_cycle(0.04, t, 10), 3) for t in range(10)]
    [0.04, 0.52, 1.0, 0.95, 0.812, 0.611, 0.389, 0.188, 0.05, 0.0]
    """
    ratios = one_cycle_ratios(div_factor, final_div_factor, three_phase)
    leg = one_cycle_leg(
        position, total, pct_start=pct_start, three_phase=three_phase, values=ratios
    )
    return along(leg, base, anneal_strategy)


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
        bounds: The higher and the lower.
        position: Iterations done.
        total: Iterations to do.
        pct_start: The share of them on the way down.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        three_phase: Come back as fast as it went down, and stay there.

    >>> [round(one_cycle_momentum((0.95, 0.85), t, 10), 3) for t in range(10)]
    [0.95, 0.9, 0.85, 0.855, 0.869, 0.889, 0.911, 0.931, 0.945, 0.95]
    """
    high, low = bounds
    values = (high, low, high, high) if three_phase else (high, low, high)
    leg = one_cycle_leg(
        position, total, pct_start=pct_start, three_phase=three_phase, values=values
    )
    return along(leg, 1, anneal_strategy)
