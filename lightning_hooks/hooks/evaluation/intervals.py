"""Decide after which epochs or iterations to evaluate."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["interval_at", "is_due", "milestones_of"]


def is_due(done: int, start: int | None, interval: int) -> bool:
    """Return whether to evaluate after ``done`` epochs or iterations.

    ``done % interval == 0``; with a start, ``(done - start) % interval == 0`` from there on.

    >>> [n for n in range(1, 9) if is_due(n, None, 3)], [n for n in range(1, 9) if is_due(n, 2, 3)]
    ([3, 6], [2, 5, 8])
    """
    if start is None:
        return done % interval == 0
    return done >= start and (done - start) % interval == 0


def interval_at(done: int, milestones: Sequence[int], intervals: Sequence[int]) -> int:
    """Return the interval in force at the ``done``-th epoch or iteration.

    >>> [interval_at(n, [0, 3, 5], [4, 2, 1]) for n in range(1, 7)]
    [4, 4, 2, 2, 1, 1]
    """
    return intervals[bisect.bisect(milestones, done) - 1]


def milestones_of(interval: int, dynamic_intervals: Any) -> tuple[list[int], list[int]]:
    """Return the milestones and intervals of mmdet's ``[(milestone, interval), ...]``.

    Raises:
        TypeError: if it is not a list of pairs of int.
        ValueError: if milestones do not increase or an interval is below 1.

    >>> milestones_of(4, [(3, 2), (5, 1)])
    ([0, 3, 5], [4, 2, 1])
    """
    try:
        pairs = [(milestone, every) for milestone, every in dynamic_intervals]
        whole = all(type(x) is int for pair in pairs for x in pair)
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise TypeError(
            "dynamic_intervals must be a list of (milestone, interval), as in [(270, 10), (290, "
            f"1)], got {dynamic_intervals!r}"
        )
    milestones, intervals = [0, *(m for m, _ in pairs)], [interval, *(i for _, i in pairs)]
    if any(a >= b for a, b in itertools.pairwise(milestones)) or min(intervals) < 1:
        raise ValueError(
            "dynamic_intervals must have increasing milestones above 0 and intervals of at least "
            f"1, got {dynamic_intervals!r}"
        )
    return milestones, intervals
