"""The cosine policy that ends with a cool-down."""

from __future__ import annotations

from lightning_hooks.schedules.anneal import annealing_cos

__all__ = ["cosine_cooldown"]


def cosine_cooldown(
    base: float,
    position: int,
    total: int,
    *,
    minimum: float = 0.0,
    ratio: float | None = None,
    cool_down_ratio: float = 0.1,
    cool_down_time: int = 10,
) -> float:
    """Anneal along half a cosine to a minimum, then stay at a share of that.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do, more than ``cool_down_time``.
        minimum: The value towards which the cosine goes.
        ratio: The same as a ratio of ``base``, instead of ``minimum``.
        cool_down_ratio: The share of the minimum at the end.
        cool_down_time: How long before the end the cosine arrives.

    >>> [round(cosine_cooldown(1.0, t, 6, minimum=0.1, cool_down_time=2), 3)
    ...  for t in range(6)]
    [1.0, 0.868, 0.55, 0.232, 0.1, 0.01]
    """
    annealing = total - cool_down_time
    low = minimum if ratio is None else base * ratio
    if position > annealing:
        return low * cool_down_ratio
    return annealing_cos(base, low, position / annealing)
