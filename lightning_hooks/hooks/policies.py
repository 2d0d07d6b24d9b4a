"""The plain policies, bound to a hook's arguments: what learning rates and momenta share.

Each is a mixin in front of a hook's base. A minimum is called ``min_lr`` by one base and
``min_momentum`` by the other; here it is ``_minimum``, and ``_ratio`` where it is relative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.updater import Updater
from lightning_hooks.schedules import checks

__all__ = [
    "Annealing",
    "Exp",
    "Fixed",
    "Inv",
    "Policy",
    "Poly",
    "Step",
    "either",
    "is_int",
]


def is_int(value: object) -> bool:
    """Whether it is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


class Policy(Updater):
    """What the mixins expect of the base that they are put in front of."""

    _minimum: Any
    _ratio: Any


class Fixed(Policy):
    """:func:`~lightning_hooks.schedules.fixed`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return the bases."""
        return [schedules.fixed(base, position) for base in bases]


class Step(Policy):
    """:func:`~lightning_hooks.schedules.step`."""

    def __init__(self, step: int | list[int], gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        milestones: Any = list(step) if isinstance(step, (list, tuple)) else [step]
        if not all(is_int(one) for one in milestones):
            raise TypeError(f"step must be an int or a list of ints, got {step!r}")
        if not all(one > 0 for one in milestones):
            raise ValueError(f"step must be positive, got {step!r}")
        self.step = step
        self.gamma = gamma

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return :func:`~lightning_hooks.schedules.step` of each base."""
        step, gamma, minimum = self.step, self.gamma, self._minimum
        return [
            schedules.step(base, position, step=step, gamma=gamma, minimum=minimum)
            for base in bases
        ]

    def check(self, total: int) -> Iterator[str]:
        """Look for milestones that are never reached."""
        return checks.check_step(self.step, total)


class Exp(Policy):
    """:func:`~lightning_hooks.schedules.exp`."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return :func:`~lightning_hooks.schedules.exp` of each base."""
        return [schedules.exp(base, position, gamma=self.gamma) for base in bases]


class Inv(Policy):
    """:func:`~lightning_hooks.schedules.inv`."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma
        self.power = power

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return :func:`~lightning_hooks.schedules.inv` of each base."""
        return [schedules.inv(base, position, gamma=self.gamma, power=self.power) for base in bases]


class Poly(Policy):
    """:func:`~lightning_hooks.schedules.poly`."""

    needs_length = True

    def __init__(self, power: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = power

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return :func:`~lightning_hooks.schedules.poly` of each base."""
        power, minimum = self.power, self._minimum
        return [
            schedules.poly(base, position, total, power=power, minimum=minimum) for base in bases
        ]


class Annealing(Policy):
    """:attr:`curve`, towards a minimum that is given as it is or as a ratio of the base."""

    needs_length = True
    curve: Callable[..., float]

    def values(self, bases: Sequence[float], position: int, total: int) -> list[float]:
        """Return the curve's value for each base."""
        curve, minimum, ratio = self.curve, self._minimum, self._ratio
        return [curve(base, position, total, minimum=minimum, ratio=ratio) for base in bases]


def either(name: str, minimum: object, ratio: object) -> None:
    """Check that one of the two is given.

    Raises:
        ValueError: if both are, or neither.
    """
    if (minimum is None) == (ratio is None):
        raise ValueError(
            f"give either {name} or {name}_ratio, got {name}={minimum!r} and {name}_ratio={ratio!r}"
        )
