"""Lengths as shares of a run, phases, and a decay at the end of a constant value.

A phase is a policy over a window of the run: the policy sees the position and the length of the
window, and a base that is the value reached by the phase before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import cos, pi, sqrt
from typing import Any, NamedTuple

from lightning_hooks.utils.arguments import check_count, shown

__all__ = ["SHAPES", "Phase", "check_length", "ends_of_phases", "in_phases", "length_of", "wsd"]

SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda share: 1 - share,
    "cosine": lambda share: 0.5 * (1 + cos(pi * share)),
    "1-sqrt": lambda share: 1 - sqrt(share),
}
"""The shapes of a decay: from 1 to 0 by the share of the decay that is done."""


class Phase(NamedTuple):
    """A policy over a window of a run."""

    policy: Callable[[Any, int, Any], float]
    """A function of (base, position, total)."""
    length: float | None = None
    """A number of epochs or iterations, a float as a share of the run, or None for the rest."""
    restart: bool = False
    """Whether the phase starts from the base, and not from the value of the phase before."""


def check_length(name: str, value: Any) -> None:
    """Check a length in epochs or iterations, or a float as a share of the run.

    Raises:
        ValueError: unless the value is an int of at least 1, or a float in (0, 1].
    """
    if isinstance(value, float):
        if not 0 < value <= 1:
            raise ValueError(f"{name} as a share of the run must be in (0, 1], got {shown(value)}")
    elif type(value) is not int or value < 1:
        raise ValueError(
            f"{name} must be an int of at least 1, or a float as a share of the run, got "
            f"{shown(value)}"
        )
    else:
        check_count(name, value)


def length_of(value: float, total: Any) -> int:
    """Return a length in epochs or iterations; a float is a share of ``total``.

    >>> length_of(500, 2000), length_of(0.05, 2000), length_of(0.001, 10)
    (500, 100, 1)
    """
    length: int = round(value * total) if isinstance(value, float) else value
    return max(1, length)


def ends_of_phases(lengths: Sequence[float | None], total: Any) -> list[Any]:
    """Return the first position after each phase; for the rest of the run, ``total``.

    Borders between shares are rounded, not the shares: the phases together have the run's length.

    >>> ends_of_phases([0.05, 0.75, 0.2], 30), ends_of_phases([500, None], 2000)
    ([2, 24, 30], [500, 2000])
    """
    counts = accumulate(0 if isinstance(length, float) else length or 0 for length in lengths)
    shares = accumulate(length if isinstance(length, float) else 0 for length in lengths)
    return [
        total if length is None else count + (round(share * total) if share else 0)
        for length, count, share in zip(lengths, counts, shares, strict=True)
    ]


def in_phases(base: float, position: int, total: Any, *, phases: Sequence[Phase]) -> float:
    """Return the value of the phase of a position.

    A phase starts from the value that the policy before has at its end, ``policy(start, n, n)``
    for a phase of length ``n``. After the last phase that value stays.

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do; may be None if no length needs it.
        phases: The phases, in order.

    >>> from functools import partial
    >>> from lightning_hooks.schedules import fixed, linear
    >>> two = [Phase(fixed, 2), Phase(partial(linear, ratio=0.0))]
    >>> [in_phases(1.0, t, 6, phases=two) for t in range(7)]
    [1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    value, begin = base, 0
    for phase, end in zip(phases, ends_of_phases([p.length for p in phases], total), strict=True):
        start = base if phase.restart else value
        length = None if end is None else end - begin
        if length is None or position < end:
            return phase.policy(start, position - begin, length)
        value, begin = (phase.policy(start, length, length) if length else start), end
    return value


def wsd(
    base: float,
    position: int,
    total: int,
    *,
    decay: float,
    shape: str = "linear",
    ratio: float = 0.0,
) -> float:
    """Stay at ``base``, then decay at the end of the run to ``base * ratio``.

    With ``s`` the share of the decay that is done, the value is
    ``base * (ratio + (1 - ratio) * f(s))``:

    ======  ========================
    shape   ``f(s)``
    ======  ========================
    linear  ``1 - s``
    cosine  ``(1 + cos(pi * s)) / 2``
    1-sqrt  ``1 - sqrt(s)``
    ======  ========================

    Args:
        base: The value at the start.
        position: Epochs or iterations done.
        total: Epochs or iterations to do.
        decay: The length of the decay; a float is a share of ``total``.
        shape: A shape from the table.
        ratio: The value at the end as a ratio of ``base``.

    >>> [wsd(1.0, t, 5, decay=0.4) for t in range(6)]
    [1.0, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    length = length_of(decay, total)
    done = position - (total - length)
    if done <= 0:
        return base
    return base * (ratio + (1 - ratio) * SHAPES[shape](min(done / length, 1.0)))
