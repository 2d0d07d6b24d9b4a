"""A leg: the way from one value to another that a policy of several phases is on."""

from __future__ import annotations

from collections.abc import Callable

from lightning_hooks.schedules.anneal import annealing_cos, annealing_linear

__all__ = ["ANNEALINGS", "Leg", "along"]

ANNEALINGS: dict[str, Callable[[float, float, float], float]] = {
    "cos": annealing_cos,
    "linear": annealing_linear,
}
"""The curves between two values, by mmcv's names."""


Leg = tuple[float, float, float]
"""The way that a value is on: the ratios of the base between which it goes, and how far it is."""


def along(leg: Leg, base: float, anneal_strategy: str) -> float:
    """Return the value on a leg.

    >>> along((1, 10, 0.5), 0.1, "linear")
    0.55
    """
    start, end, factor = leg
    return ANNEALINGS[anneal_strategy](base * start, base * end, factor)
