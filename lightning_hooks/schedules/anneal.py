"""Policies that anneal to a minimum along a curve: cosines and lines.

The minimum is a value or a ratio of the base. The last position, ``total - 1``, comes before the
minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import cos, pi

__all__ = [
    "annealing_cos",
    "annealing_linear",
    "cosine",
    "cosine_cooldown",
    "cosine_restart",
    "flat_cosine",
    "linear",
    "yolox",
    "yolox_warm_up",
]


def annealing_cos(start: float, end: float, factor: float, weight: float = 1.0) -> float:
    """Go from ``start`` to ``end`` along half a cosine.

    ``end + weight / 2 * (start - end) * (cos(pi * factor) + 1)``

    Args:
        start: The value at ``factor=0``, if ``weight`` is 1.
        end: The value at ``factor=1``.
        factor: The share of the way done, from 0 to 1.
        weight: Scales the distance to ``end`` (after a restart).

    >>> annealing_cos(1.0, 0.0, 0.0), annealing_cos(1.0, 0.0, 1.0)
    (1.0, 0.0)
    """
    # mmcv's order of operations: the last bit depends on it
    return end + 0.5 * weight * (start - end) * (cos(pi * factor) + 1)


def annealing_linear(start: float, end: float, factor: float) -> float:
    """Go from ``start`` to ``end`` along a line.

    >>> annealing_linear(1.0, 0.0, 0.25)
    0.75
    """
    return start + (end - start) * factor


def cosine(
    base: float,
    position: int,
    total: int,
    *,
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Anneal along half a cosine: :func:`annealing_cos` at ``position / total``.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do.
        minimum: The value at the end.
        ratio: The minimum as a ratio of ``base``, instead of ``minimum``.

    >>> [round(cosine(1.0, epoch, 4, minimum=0.0), 4) for epoch in range(4)]
    [1.0, 0.8536, 0.5, 0.1464]
    """
    end = minimum if ratio is None else base * ratio
    return end + 0.5 * (base - end) * (cos(pi * (position / total)) + 1.0)  # annealing_cos, faster


def linear(
    base: float,
    position: int,
    total: int,
    *,
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Anneal along a line; arguments as for :func:`cosine`.

    >>> [linear(1.0, epoch, 4, ratio=0.0) for epoch in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    end = minimum if ratio is None else base * ratio
    return annealing_linear(base, end, position / total)


def flat_cosine(
    base: float,
    position: int,
    total: int,
    *,
    start: float = 0.75,
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Stay at ``base`` for a share ``start`` of the way, then anneal along half a cosine.

    >>> [round(flat_cosine(1.0, epoch, 4, start=0.5, minimum=0.0), 4) for epoch in range(4)]
    [1.0, 1.0, 1.0, 0.5]
    """
    flat = round(total * start)
    if position < flat:
        return base
    end = minimum if ratio is None else base * ratio
    return annealing_cos(base, end, (position - flat) / (total - flat))


def cosine_restart(
    base: float,
    position: int,
    total: int | None = None,
    *,
    periods: Sequence[int],
    weights: Sequence[float] = (1,),
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Anneal along half a cosine again and again.

    Args:
        base: The value at the start.
        position: Epochs or iterations done, less than the sum of ``periods``.
        total: Not used.
        periods: The length of each period.
        weights: For each period, the share of ``base`` at the start.
        minimum: The value at the end of each period.
        ratio: The minimum as a ratio of ``base``, instead of ``minimum``.

    Raises:
        ValueError: for a position after the last period.

    >>> [round(cosine_restart(1.0, t, periods=[2, 2], weights=[1, 0.5], minimum=0.0), 4)
    ...  for t in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """
    begin, end = 0, minimum if ratio is None else base * ratio
    for period, weight, stop in zip(periods, weights, accumulate(periods), strict=True):
        if position < stop:
            factor = min((position - begin) / period, 1)
            return annealing_cos(base, end, factor, weight)
        begin = stop
    raise ValueError(
        f"position {position} is after the last of the periods {list(periods)}; "
        "they must add up to the length of the run"
    )


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
    """Anneal along half a cosine to a minimum, then stay at a share of the minimum.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do, more than ``cool_down_time``.
        minimum: The value at the end of the cosine.
        ratio: The minimum as a ratio of ``base``, instead of ``minimum``.
        cool_down_ratio: The share of the minimum at the end.
        cool_down_time: Epochs or iterations between the ends of cosine and run.

    >>> [round(cosine_cooldown(1.0, t, 6, minimum=0.1, cool_down_time=2), 3)
    ...  for t in range(6)]
    [1.0, 0.868, 0.55, 0.232, 0.1, 0.01]
    """
    annealing = total - cool_down_time
    low = minimum if ratio is None else base * ratio
    if position > annealing:
        return low * cool_down_ratio
    return annealing_cos(base, low, position / annealing)


def yolox(
    base: float,
    position: int,
    total: int,
    *,
    first: int = 0,
    last: int = 0,
    minimum: float = 0.0,
    ratio: float | None = None,
) -> float:
    """Anneal along half a cosine from ``first`` until ``last`` before the end; then stay.

    With ``t = position + 1`` the value is :func:`~lightning_hooks.schedules.annealing_cos` at
    ``(t - first) / (total - first - last)``, and the minimum from ``total - last`` on.

    Args:
        base: The value where the cosine begins.
        position: Iterations done.
        total: Iterations to do, more than ``first + last``.
        first: Iterations of the warm-up, see :func:`yolox_warm_up`.
        last: Iterations at the minimum.
        minimum: The value at the end.
        ratio: The minimum as a ratio of ``base``, instead of ``minimum``.

    >>> [round(yolox(1.0, t, 8, first=2, last=2, minimum=0.1), 3) for t in range(2, 8)]
    [0.868, 0.55, 0.232, 0.1, 0.1, 0.1]
    """
    low = minimum if ratio is None else base * ratio
    now = position + 1
    if now >= total - last:
        return low
    return annealing_cos(base, low, (now - first) / (total - first - last))


def yolox_warm_up(position: int, length: int, *, ratio: float = 0.1) -> float:
    """Return the factor of YOLOX' warm-up: ``ratio * ((position + 1) / length)**2``.

    >>> [yolox_warm_up(t, 4, ratio=1.0) for t in range(4)]
    [0.0625, 0.25, 0.5625, 1.0]
    """
    factor: float = ratio * ((position + 1) / length) ** 2
    return factor
