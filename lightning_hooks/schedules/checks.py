"""Checks of a schedule before it runs, and of its arguments.

The generators yield what is odd about a schedule in a run of ``total`` epochs or iterations, and
raise ValueError where the run would fail. Arguments have mmcv's names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from lightning_hooks.schedules.cyclic import ANNEALINGS, one_cycle_ends

__all__ = [
    "check_anneal_strategy",
    "check_cyclic",
    "check_one_cycle",
    "check_periods",
    "check_share",
    "check_step",
]


def check_step(step: int | Sequence[int], total: int) -> Iterator[str]:
    """Yield milestones that are never reached, or not in order.

    >>> list(check_step([2, 8, 11], 8))
    ['the run has 8, so these milestones are never reached: 8, 11']
    """
    if isinstance(step, int):
        return
    if any(a >= b for a, b in itertools.pairwise(step)):
        yield f"the milestones {list(step)} do not rise"
    late = [one for one in step if one >= total]
    if late:
        listed = ", ".join(map(str, late))
        yield f"the run has {total}, so these milestones are never reached: {listed}"


def check_periods(periods: Sequence[int], total: int) -> Iterator[str]:
    """Yield that the periods are longer than the run; shorter ones are an error.

    >>> list(check_periods([5, 5], 8))
    ['the periods [5, 5] add up to 10, the run has 8: it ends before they do']
    """
    length = sum(periods)
    text = f"the periods {list(periods)} add up to {length}, the run has {total}"
    if length < total:
        raise ValueError(f"{text}: they must reach its end")
    if length > total:
        yield f"{text}: it ends before they do"


def check_cyclic(cyclic_times: int, step_ratio_up: float, total: int) -> Iterator[str]:
    """Yield cycles without the way to the first target; cycles without length are an error.

    >>> list(check_cyclic(5, 0.4, 10))
    ['a cycle of 2 is too short for step_ratio_up=0.4: it starts at its first target']
    """
    length = total // cyclic_times
    if length == 0:
        raise ValueError(f"cyclic_times={cyclic_times} is more than the run has: {total}")
    if step_ratio_up and int(step_ratio_up * length) == 0:
        yield (
            f"a cycle of {length} is too short for step_ratio_up={step_ratio_up}: "
            "it starts at its first target"
        )


def check_one_cycle(pct_start: float, three_phase: bool, total: int) -> Iterator[str]:
    """Yield phases that the end of the run cuts off; phases without length are an error.

    >>> list(check_one_cycle(0.6, True, 10))
    ['pct_start=0.6 leaves no room for the third phase: the second one is cut off']
    """
    ends = one_cycle_ends(total, pct_start, three_phase)
    if ends[0] == 0:
        raise ValueError(
            f"pct_start={pct_start} of {total} gives the first phase no length: "
            "take another pct_start, or a longer run"
        )
    if three_phase and ends[1] > ends[2]:
        yield f"pct_start={pct_start} leaves no room for the third phase: the second one is cut off"


def check_share(name: str, value: object, *, below_one: bool = False) -> float:
    """Return a share of the run, if it is a number from 0 to 1.

    Args:
        name: The argument's name, for the error.
        value: The number.
        below_one: Refuse 1.

    Raises:
        ValueError: for anything else.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1 or (below_one and value == 1):  # type: ignore[operator]
        allowed = "in [0, 1)" if below_one else "between 0 and 1"
        raise ValueError(f"{name} must be a number {allowed}, got {value!r}")
    return value  # type: ignore[return-value]


def check_anneal_strategy(value: str) -> str:
    """Return the name of a curve, if it is one.

    Raises:
        ValueError: for any other.
    """
    if not isinstance(value, str) or value not in ANNEALINGS:
        raise ValueError(f'anneal_strategy must be "cos" or "linear", got {value!r}')
    return value
