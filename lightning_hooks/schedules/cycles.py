"""The cyclic policy, for learning rates and for momenta."""

from __future__ import annotations

from math import cos, floor, pi

from lightning_hooks.schedules.anneal import annealing_linear

__all__ = ["cyclic"]


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
    """Go to one multiple of the base and on to another, some times over.

    With ``g = gamma**cycle``, a cycle goes from ``base`` to ``base * (1 - g + g * ratio[0])`` and
    on to ``base * ratio[1]``; it has ``total // cyclic_times`` iterations, and a share
    ``step_ratio_up`` of them for the first way. A cycle without a first way starts at
    ``base * ratio[0]`` and goes to ``base * (1 - g + g * ratio[1])``.

    Args:
        base: The value at the start.
        position: Iterations done.
        total: Iterations to do, at least ``cyclic_times``.
        target_ratio: The two targets as ratios of ``base``.
        cyclic_times: How many cycles; what is left over begins one more.
        step_ratio_up: The share of a cycle, in [0, 1), until the first target.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        gamma: How much of the first target's distance to ``base`` is left in each next cycle.

    >>> [round(cyclic(1.0, t, 10, target_ratio=(10, 0.1), cyclic_times=2, gamma=0.5), 3)
    ...  for t in range(10)]
    [1.0, 5.5, 10.0, 7.525, 2.575, 1.0, 3.25, 5.5, 4.15, 1.45]
    """
    length = total // cyclic_times
    up, now = floor(step_ratio_up * length), position % length
    first, last = target_ratio
    # mmcv's order of operations: the last bit depends on it
    if gamma != 1.0:
        scale = gamma ** (position // length)
        if up:
            first = 1 - scale + first * scale
        else:
            last = 1 - scale + last * scale
    if now < up:
        start, end, factor = base, base * first, now / up
    else:
        start, end, factor = base * first, base * last, (now - up) / (length - up)
    if anneal_strategy == "cos":
        return end + 0.5 * (start - end) * (cos(pi * factor) + 1.0)  # annealing_cos, faster
    return annealing_linear(start, end, factor)
