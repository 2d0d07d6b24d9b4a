"""The plain policies, bound to a hook's arguments: what learning rates and momenta share.

Each is a mixin in front of a hook's base. A minimum is called ``min_lr`` by one base and
``min_momentum`` by the other; here it is ``_minimum``, and ``_ratio`` where it is relative.

The policies of several phases, bound to a hook's arguments: for learning rates and momenta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.updaters.base import Updater
from lightning_hooks.schedules import checks
from lightning_hooks.utils.arguments import LARGEST, check_bool, check_number, is_finite

__all__ = [
    "Annealing",
    "Cyclic",
    "Exp",
    "Fixed",
    "Inv",
    "OneCycle",
    "Policy",
    "Poly",
    "Step",
    "by_iteration",
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

    def value(self, base: float, position: int, total: Any) -> float:
        """Return the base."""
        return schedules.fixed(base, position)


class Step(Policy):
    """:func:`~lightning_hooks.schedules.step`."""

    def __init__(self, step: int | list[int], gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        milestones: Any = list(step) if isinstance(step, (list, tuple)) else [step]
        if not all(is_int(one) for one in milestones):
            raise TypeError(f"step must be an int or a list of ints, got {step!r}")
        if not all(0 < one <= LARGEST for one in milestones):
            raise ValueError(f"step must be positive, got {step!r}")
        check_number("gamma", gamma, least=0)
        self.step = step
        self.gamma = gamma

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.step`."""
        return schedules.step(
            base, position, step=self.step, gamma=self.gamma, minimum=self._minimum
        )

    def check(self, total: int) -> Iterator[str]:
        """Look for milestones that are never reached."""
        return checks.check_step(self.step, total)


class Exp(Policy):
    """:func:`~lightning_hooks.schedules.exp`."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        self.gamma = gamma

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.exp`."""
        return schedules.exp(base, position, gamma=self.gamma)


class Inv(Policy):
    """:func:`~lightning_hooks.schedules.inv`."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        check_number("power", power, least=0)
        self.gamma = gamma
        self.power = power

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.inv`."""
        return schedules.inv(base, position, gamma=self.gamma, power=self.power)


class Poly(Policy):
    """:func:`~lightning_hooks.schedules.poly`."""

    needs_length = True

    def __init__(self, power: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("power", power, least=0)
        self.power = power

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.poly`."""
        return schedules.poly(base, position, total, power=self.power, minimum=self._minimum)


class Annealing(Policy):
    """:attr:`curve`, towards a minimum that is given as it is or as a ratio of the base."""

    needs_length = True
    curve: Callable[..., float]

    def value(self, base: float, position: int, total: Any) -> float:
        """Return the curve's value."""
        return self.curve(base, position, total, minimum=self._minimum, ratio=self._ratio)


def either(name: str, minimum: object, ratio: object) -> None:
    """Check that one of the two is given, and is a number.

    Raises:
        ValueError: if both are, or neither.
        TypeError: if it is no number.
    """
    if (minimum is None) == (ratio is None):
        raise ValueError(
            f"give either {name} or {name}_ratio, got {name}={minimum!r} and {name}_ratio={ratio!r}"
        )
    if ratio is None:
        check_number(name, minimum)
    else:
        check_number(f"{name}_ratio", ratio)


def by_iteration(hook: Updater, by_epoch: bool) -> bool:
    """Return False, the only ``by_epoch`` of a policy that counts iterations.

    Raises:
        ValueError: for True.
    """
    check_bool(by_epoch=by_epoch)
    if by_epoch:
        raise ValueError(f"{type(hook).__name__} counts iterations: by_epoch must be False")
    return by_epoch


class Cyclic(Policy):
    """:func:`~lightning_hooks.schedules.cyclic`."""

    needs_length = True

    def __init__(
        self,
        by_epoch: bool,
        target_ratio: Any,
        cyclic_times: int,
        step_ratio_up: float,
        anneal_strategy: str,
        gamma: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_iteration(self, by_epoch), **kwargs)
        ratios = target_ratio if isinstance(target_ratio, (list, tuple)) else [target_ratio]
        if len(ratios) == 1 and is_finite(ratios[0]):
            ratios = (ratios[0], ratios[0] / 1e5)
        if len(ratios) != 2 or not all(map(is_finite, ratios)):
            raise ValueError(f"target_ratio must be a number or two of them, got {target_ratio!r}")
        if not is_int(cyclic_times) or cyclic_times < 1:
            raise ValueError(f"cyclic_times must be an int of at least 1, got {cyclic_times!r}")
        check_number("gamma", gamma)
        if not 0 < gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1], got {gamma!r}")
        self.target_ratio: tuple[float, float] = (ratios[0], ratios[1])
        self.cyclic_times = cyclic_times
        self.step_ratio_up = checks.check_share("step_ratio_up", step_ratio_up, below_one=True)
        self.anneal_strategy = checks.check_anneal_strategy(anneal_strategy)
        self.gamma = gamma

    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.cyclic`."""
        return schedules.cyclic(
            base,
            position,
            total,
            target_ratio=self.target_ratio,
            cyclic_times=self.cyclic_times,
            step_ratio_up=self.step_ratio_up,
            anneal_strategy=self.anneal_strategy,
            gamma=self.gamma,
        )

    def check(self, total: int) -> Iterator[str]:
        """Look for cycles without length."""
        return checks.check_cyclic(self.cyclic_times, self.step_ratio_up, total)


class OneCycle(Policy):
    """The phases of :func:`~lightning_hooks.schedules.one_cycle`."""

    needs_length = True

    def __init__(
        self,
        pct_start: float,
        anneal_strategy: str,
        three_phase: bool,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_iteration(self, by_epoch), **kwargs)
        check_bool(three_phase=three_phase)
        self.pct_start = checks.check_share("pct_start", pct_start)
        self.anneal_strategy = checks.check_anneal_strategy(anneal_strategy)
        self.three_phase = three_phase

    def check(self, total: int) -> Iterator[str]:
        """Look for phases without length."""
        return checks.check_one_cycle(self.pct_start, self.three_phase, total)
