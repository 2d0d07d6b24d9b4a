"""Policies that anneal towards a minimum along a curve: cosine, linear, flat cosine, restarts.

The minimum is given as a value or as a ratio of the base. It is never quite
reached: the last position is ``total - 1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import cos, pi

__all__ = [
    "annealing_cos",
    "annealing_linear",
    "cosine",
    "cosine_restart",
    "flat_cosine",
    "linear",
]


def annealing_cos(start: float, end: float, factor: float, weight: float = 1.0) -> float:
    """Go from ``start`` to ``end`` along half a cosine.

    ``end + weight / 2 * (start - end) * (cos(pi * factor) + 1)``

    Args:
        start: The value at ``factor=0``, if ``weight`` is 1.
        end: The value at ``factor=1``.
        factor: How much of the way is done, from 0 to 1.
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
        minimum: The value towards which it goes.
        ratio: The same as a ratio of ``base``, instead of ``minimum``.

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
        total: Not looked at.
        periods: The lengths.
        weights: For each period, the share of ``base`` from which it starts.
        minimum: The value towards which each goes.
        ratio: The same as a ratio of ``base``, instead of ``minimum``.

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
