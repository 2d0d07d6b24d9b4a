"""Warm-up: a factor on top of any policy."""

from __future__ import annotations

from lightning_hooks.schedules.phases import check_length
from lightning_hooks.utils.arguments import check_number, shown

__all__ = ["WARM_UPS", "check_warm_up", "warm_up"]

WARM_UPS = ("constant", "linear", "exp")
"""The kinds of warm-up."""


def warm_up(position: int, length: int, *, kind: str | None, ratio: float = 0.1) -> float:
    """Return the factor of a warm-up; 1 after the end.

    ========  =======================================
    kind      factor at ``t`` of ``length``
    ========  =======================================
    constant  ``ratio``
    linear    ``1 - (1 - t / length) * (1 - ratio)``
    exp       ``ratio**(1 - t / length)``
    ========  =======================================

    A rate is multiplied by the factor, a momentum divided. A warm-up scales the policy and delays
    nothing.

    Args:
        position: Iterations done.
        length: Iterations of the warm-up.
        kind: A kind from the table, or None for no warm-up.
        ratio: The factor at the start, in (0, 1].

    >>> [round(warm_up(t, 4, kind="linear", ratio=0.1), 3) for t in range(5)]
    [0.1, 0.325, 0.55, 0.775, 1.0]
    """
    if kind is None or position >= length:
        return 1.0
    if kind == "constant":
        return ratio
    left = 1 - position / length
    if kind == "linear":
        return 1 - left * (1 - ratio)
    factor: float = ratio**left
    return factor


def check_warm_up(warmup: object, warmup_iters: object, warmup_ratio: object) -> None:
    """Check the arguments of a warm-up, by mmcv's names.

    Raises:
        ValueError: for an unknown kind, a length below 1, or a ratio outside (0, 1].
        TypeError: if the ratio is not a number.
    """
    if warmup is None:
        return
    if not isinstance(warmup, str) or warmup not in WARM_UPS:
        word = warmup if isinstance(warmup, str) else shown(warmup)
        raise ValueError(
            f'"{word}" is not a supported type for warming up: warmup must be None, '
            '"constant", "linear" or "exp"'
        )
    check_length("warmup_iters", warmup_iters)
    if not 0 < check_number("warmup_ratio", warmup_ratio) <= 1:
        raise ValueError(f"warmup_ratio must be in (0, 1], got {shown(warmup_ratio)}")
