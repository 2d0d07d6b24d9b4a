"""Update rules of averages, as pure functions: the weight of the model at a step.

``average = (1 - w) * average + w * model``, with ``w`` a function of the step. The step counts the
earlier optimizer steps, from 0.

==========================  ========================================================================
rule of                     here
==========================  ========================================================================
mmcv                        ``EMAHook(momentum, warm_up)``: ``ema_momentum``
mmdetection                 ``ExpMomentumEMAHook``, ``LinearMomentumEMAHook``; ``BaseEMAHook``
                            with a ``momentum_fun``, any function of the step
MMEngine                    ``EMAHook(warm_up=0, begin_iter=1)``; ``MomentumAnnealingEMAHook``;
                            ``StochasticWeightAverageHook``
Lightning                   ``EMAHook(1 - decay, warm_up=0, begin_iter=1)``
timm                        ``MomentumAnnealingEMAHook(1 - decay, gamma=1, power=2 / 3)``
TensorFlow, diffusers       ``EMAHook(1 - decay, warm_up="fast")``: ``fast_momentum``
Ignite                      ``BaseEMAHook(momentum_fun=partial(ramped_momentum, ...))``
Composer                    ``EMAHook(half_life_momentum(steps), warm_up=0)``
==========================  ========================================================================
"""

from __future__ import annotations

import math
from typing import Literal

__all__ = [
    "annealing_momentum",
    "ema_momentum",
    "equal_share",
    "exp_momentum",
    "fast_momentum",
    "half_life_momentum",
    "linear_momentum",
    "over_interval",
    "ramped_momentum",
    "share_of_beginning",
]


def over_interval(momentum: float, interval: int) -> float:
    """Return the weight of a single update that equals ``interval`` updates.

    ``1 - (1 - momentum) ** interval``: each update keeps ``1 - momentum`` of the average.

    >>> over_interval(0.5, 2)
    0.75
    """
    return momentum if interval == 1 else 1 - (1 - momentum) ** interval


def ema_momentum(step: int, momentum: float, warm_up: int) -> float:
    """Return mmcv's weight, with a working warm-up.

    ``min(momentum, (1 + step) / (warm_up + step))``, mmcv's formula, if ``momentum * warm_up > 1``;
    else (mmcv's formula would be constant) ``momentum * min(1, (1 + step) / warm_up)``.

    Args:
        step: Earlier optimizer steps.
        momentum: The weight after the warm-up, in (0, 1).
        warm_up: Steps of smaller momentum.

    Note:
        Departure from mmcv: mmcv's warm-up has no effect in the second case, the default.

    >>> [ema_momentum(step, 0.5, 10) for step in (0, 2, 8, 20)]
    [0.1, 0.25, 0.5, 0.5]
    >>> [ema_momentum(step, 0.0625, 8) for step in (0, 3, 7, 20)]
    [0.0078125, 0.03125, 0.0625, 0.0625]
    """
    if momentum * warm_up > 1:
        return linear_momentum(step, momentum, warm_up)
    return momentum * min(1.0, (1 + step) / max(warm_up, 1))


def fast_momentum(updates: int, momentum: float) -> float:
    """Return the weight of a fast warm-up: a decay of ``min(1 - momentum, (1 + t) / (10 + t))``.

    ``max(momentum, 9 / (10 + t))``, with ``t`` the earlier updates: the average follows the first
    models closely, and forgets the first weights.

    >>> [round(fast_momentum(t, 0.1), 4) for t in (0, 8, 80, 800)]
    [0.9, 0.5, 0.1, 0.1]
    """
    return max(momentum, 9 / (10 + updates))


def share_of_beginning(
    momentum: float, warm_up: int | Literal["fast"], steps: int, interval: int = 1
) -> float:
    """Return the share of the first weights in an ``EMAHook``'s average after some steps.

    The product of ``1 - ema_momentum(step, ...)``, or ``1 - fast_momentum(update, ...)``, over the
    steps with an update.

    >>> share_of_beginning(0.5, 0, steps=2)
    0.25
    >>> share_of_beginning(0.5, 0, steps=4, interval=3)  # updates after steps 1 and 4
    0.015625
    >>> round(share_of_beginning(0.1, 100, steps=6), 2)
    0.81
    >>> share_of_beginning(0.1, "fast", steps=2)  # 1 / 10 * 2 / 11
    0.01818181818181818
    """
    full, share = over_interval(momentum, interval), 1.0
    if warm_up == "fast":  # n! 9! / (n + 9)! after n updates of the warm-up
        updates = len(range(0, steps, interval))
        warming = min(updates, max(0, math.ceil(9 / full) - 10))
        return (1 - full) ** (updates - warming) / math.comb(warming + 9, 9)
    for step in range(0, steps, interval):
        weight = ema_momentum(step, full, warm_up)
        if weight >= full:  # the warm-up is over
            return float(share * (1 - full) ** len(range(step, steps, interval)))
        share *= 1 - weight
    return share


def linear_momentum(step: int, momentum: float, warm_up: int) -> float:
    """Return mmdetection's linear weight: ``min(momentum, (1 + step) / (warm_up + step))``.

    The weight is below ``momentum`` only if ``momentum * warm_up > 1``.

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


def ramped_momentum(step: int, start: float, momentum: float, warm_up: int) -> float:
    """Return Ignite's weight: ``warm_up`` equal steps from ``start`` to ``momentum``.

    >>> [round(ramped_momentum(step, 0.1, 0.5, 5), 4) for step in (0, 1, 4, 9)]
    [0.1, 0.2, 0.5, 0.5]
    """
    if step >= warm_up - 1:
        return momentum
    return start + (momentum - start) * step / (warm_up - 1)


def half_life_momentum(half_life: float) -> float:
    """Return Composer's weight: a model's share halves every ``half_life`` steps.

    ``1 - 2 ** (-1 / half_life)``

    >>> round(over_interval(half_life_momentum(1000), 1000), 9)
    0.5
    """
    return -math.expm1(-math.log(2) / half_life)


def annealing_momentum(step: int, momentum: float, gamma: float, power: float = 1.0) -> float:
    """Return the annealed weight ``max(momentum, (gamma / (gamma + step)) ** power)``.

    The first update copies the model. MMEngine's weight has a power of 1, timm's a power of 2/3 and
    a gamma of 1.

    >>> [annealing_momentum(step, 0.25, 2) for step in (0, 2, 6, 7)]
    [1.0, 0.5, 0.25, 0.25]
    """
    return max(momentum, math.pow(gamma / (gamma + step), power))


def equal_share(step: int, interval: int = 1) -> float:
    """Return the weight of a plain mean of all models so far (SWA).

    ``1 / (step // interval + 1)``

    >>> [equal_share(step, 2) for step in (0, 2, 6)]
    [1.0, 0.5, 0.25]
    """
    return 1 / (step // interval + 1)
