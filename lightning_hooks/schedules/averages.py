"""How much the model weighs in its average at a step: every update rule as a pure function.

``average = (1 - w) * average + w * model``, where ``w`` is one of these functions of the step.
The step counts the optimizer steps before this one, from 0.
"""

from __future__ import annotations

import math

__all__ = [
    "annealing_momentum",
    "ema_momentum",
    "equal_share",
    "exp_momentum",
    "linear_momentum",
    "over_interval",
]


def over_interval(momentum: float, interval: int) -> float:
    """Return the weight that one update needs to do what ``interval`` updates would have done.

    ``1 - (1 - momentum) ** interval``: the average keeps ``1 - momentum`` of itself each time.

    >>> over_interval(0.5, 2)
    0.75
    """
    return 1 - (1 - momentum) ** interval


def ema_momentum(step: int, momentum: float, warm_up: int) -> float:
    """Return mmcv's weight with a warm-up that works.

    ``min(momentum, (1 + step) / (warm_up + step))``, mmcv's formula; where that is never below
    ``momentum`` (``momentum * warm_up <= 1``), ``momentum * min(1, (1 + step) / warm_up)``.

    Args:
        step: Optimizer steps before this one.
        momentum: The weight after the warm-up, in (0, 1).
        warm_up: Steps of smaller momentum.

    Note:
        Departure from mmcv: there the warm-up has no effect in the second case, the default one.

    >>> [ema_momentum(step, 0.5, 10) for step in (0, 2, 8, 20)]
    [0.1, 0.25, 0.5, 0.5]
    >>> [ema_momentum(step, 0.0625, 8) for step in (0, 3, 7, 20)]
    [0.0078125, 0.03125, 0.0625, 0.0625]
    """
    if momentum * warm_up > 1:
        return linear_momentum(step, momentum, warm_up)
    return momentum * min(1.0, (1 + step) / max(warm_up, 1))


def linear_momentum(step: int, momentum: float, warm_up: int) -> float:
    """Return mmdetection's linear weight: ``min(momentum, (1 + step) / (warm_up + step))``.

    It is below ``momentum`` only where ``momentum * warm_up > 1``.

    >>> [linear_momentum(step, 0.5, 10) for step in (0, 2, 8, 20)]
    [0.1, 0.25, 0.5, 0.5]
    """
    if step + warm_up == 0:
        return momentum
    return min(momentum, (1 + step) / (warm_up + step))


def exp_momentum(step: int, momentum: float, total_iter: int) -> float:
    """Return mmdetection's weight, falling from almost 1 to ``momentum``.

    ``(1 - momentum) * exp(-(1 + step) / total_iter) + momentum``

    >>> [round(exp_momentum(step, 0.1, 10), 4) for step in (0, 9, 99)]
    [0.9144, 0.4311, 0.1]
    """
    return (1 - momentum) * math.exp(-(1 + step) / total_iter) + momentum


def annealing_momentum(step: int, momentum: float, gamma: float) -> float:
    """Return MMEngine's annealed weight: ``max(momentum, gamma / (gamma + step))``.

    The first update takes the model as it is.

    >>> [annealing_momentum(step, 0.25, 2) for step in (0, 2, 6, 7)]
    [1.0, 0.5, 0.25, 0.25]
    """
    return max(momentum, gamma / (gamma + step))


def equal_share(step: int, interval: int = 1) -> float:
    """Return the weight that makes the average the mean of all models so far (SWA).

    ``1 / (step // interval + 1)``

    >>> [equal_share(step, 2) for step in (0, 2, 6)]
    [1.0, 0.5, 0.25]
    """
    return 1 / (step // interval + 1)
