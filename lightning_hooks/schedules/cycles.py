"""The cyclic policy, for learning rates and for momenta."""

from __future__ import annotations

from lightning_hooks.schedules.legs import Leg, along

__all__ = ["cyclic", "cyclic_leg"]


def cyclic_leg(
    position: int,
    total: int,
    *,
    target_ratio: tuple[float, float],
    cyclic_times: int,
    step_ratio_up: float,
    gamma: float,
) -> Leg:
    """Return the leg of :func:`cyclic` at a position, which is that of all groups.

    >>> cyclic_leg(1, 10, target_ratio=(10, 0.1), cyclic_times=2, step_ratio_up=0.4, gamma=0.5)
    (1, 10.0, 0.5)
    """
    length = total // cyclic_times
    up = int(step_ratio_up * length)
    cycle, now = divmod(position, length)
    scale = gamma**cycle
    first, last = target_ratio
    # mmcv's order of operations: the last bit depends on it
    if now < up:
        return 1, 1 - scale + first * scale, now / up
    if up == 0:
        last = 1 - scale + last * scale
    else:
        first = 1 - scale + first * scale
    return first, last, (now - up) / (length - up)


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
    leg = cyclic_leg(
        position,
        total,
        target_ratio=target_ratio,
        cyclic_times=cyclic_times,
        step_ratio_up=step_ratio_up,
        gamma=gamma,
    )
    return along(leg, base, anneal_strategy)
