"""The policy of YOLOX: a cosine between the warm-up and some last epochs at the minimum."""

from __future__ import annotations

from lightning_hooks.schedules.anneal import annealing_cos

__all__ = ["yolox", "yolox_warm_up"]


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

    With ``t = position + 1`` it is :func:`~lightning_hooks.schedules.annealing_cos` at
    ``(t - first) / (total - first - last)``, and the minimum from ``total - last`` on.

    Args:
        base: The value where the cosine begins.
        position: Iterations done.
        total: Iterations to do, more than ``first + last``.
        first: Iterations of the warm-up, during which a warm-up must take over.
        last: Iterations at the minimum.
        minimum: The value at the end.
        ratio: The same as a ratio of ``base``, instead of ``minimum``.

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
