"""The policies that learning rates and momenta share: a schedule bound to a hook's arguments.

Each is written once, as a mixin in front of ``LrUpdaterHook`` or ``MomentumUpdaterHook``. The
minimum, ``min_lr`` of one and ``min_momentum`` of the other, is ``_minimum`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.updaters.base import Updater
from lightning_hooks.hooks.updaters.param_groups import elementwise
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
    "check_milestones",
    "is_int",
]


def is_int(value: object) -> bool:
    """Whether it is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_milestones(name: str, step: Any) -> None:
    """Check an interval or a list of milestones.

    Raises:
        TypeError: unless it is an int or a list of ints.
        ValueError: unless they are positive.
    """
    milestones = step if isinstance(step, (list, tuple)) else [step]
    if not all(map(is_int, milestones)):
        raise TypeError(f"{name} must be an int or a list of ints, got {step!r}")
    if not all(0 < one <= LARGEST for one in milestones):
        raise ValueError(f"{name} must be positive, got {step!r}")


def by_iteration(hook: Updater, by_epoch: bool) -> bool:
    """Return False, the only ``by_epoch`` of a policy that counts iterations.

    Raises:
        ValueError: for True.
    """
    check_bool(by_epoch=by_epoch)
    if by_epoch:
        raise ValueError(f"{type(hook).__name__} counts iterations: by_epoch must be False")
    return by_epoch


class Policy(Updater):
    """A mixin in front of the base of a hook."""

    _minimum: Any
    _minimum_ratio: Any


class Fixed(Policy):
    """The policy of :func:`~lightning_hooks.schedules.fixed`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def value(self, base: float, position: int, total: Any) -> float:
        """Return the base."""
        return base


class Step(Policy):
    """The policy of :func:`~lightning_hooks.schedules.step`."""

    def __init__(
        self, step: int | list[int], gamma: float, minimum: float | None, /, **kwargs: Any
    ) -> None:
        check_milestones("step", step)
        check_number("gamma", gamma, least=0)
        if minimum is not None:
            check_number(f"min_{self.symbol}", minimum, least=self.least_minimum)
        super().__init__(**kwargs)
        self.step = step
        self.gamma = gamma
        self._minimum = minimum

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.step`."""
        return schedules.step(
            base, position, step=self.step, gamma=self.gamma, minimum=self._minimum
        )

    @property
    def takes_arrays(self) -> bool:
        """Whether ``value`` takes an array: only where nothing is compared with a minimum."""
        return self._minimum is None and super().takes_arrays

    def check(self, total: int) -> Iterator[str]:
        """Yield milestones that are never reached, and those that are likely meant as epochs."""
        yield from checks.check_step(self.step, total)
        if self.by_epoch or isinstance(self.step, int):
            return
        last = max(self.step, default=total)
        if last * 100 < total:
            yield (
                f"by_epoch=False counts iterations, and the last milestone, {last}, is among the "
                f"first of {total}; to count epochs leave by_epoch out"
            )


class Exp(Policy):
    """The policy of :func:`~lightning_hooks.schedules.exp`."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        self.gamma = gamma

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.exp`."""
        return schedules.exp(base, position, gamma=self.gamma)


class Inv(Policy):
    """The policy of :func:`~lightning_hooks.schedules.inv`."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("gamma", gamma, least=0)
        check_number("power", power, least=0)
        self.gamma = gamma
        self.power = power

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.inv`."""
        return schedules.inv(base, position, gamma=self.gamma, power=self.power)


class Poly(Policy):
    """The policy of :func:`~lightning_hooks.schedules.poly`."""

    needs_length = True

    def __init__(self, power: float, minimum: float, /, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number("power", power, least=0)
        check_number(f"min_{self.symbol}", minimum, least=self.least_minimum)
        self.power = power
        self._minimum = minimum

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.poly`."""
        return schedules.poly(base, position, total, power=self.power, minimum=self._minimum)


class Annealing(Policy):
    """The policy of a curve to a minimum, given as a value or as a ratio of the base."""

    needs_length = True
    curve: Callable[..., float]

    def __init__(self, minimum: float | None, ratio: float | None, /, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name = f"min_{self.symbol}"
        if (minimum is None) == (ratio is None):
            raise ValueError(
                f"give either {name} or {name}_ratio, got {name}={minimum!r} and "
                f"{name}_ratio={ratio!r}"
            )
        if ratio is None:
            check_number(name, minimum)
        else:
            check_number(f"{name}_ratio", ratio)
        self._minimum = minimum
        self._minimum_ratio = ratio

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return the curve's value."""
        return self.curve(base, position, total, minimum=self._minimum, ratio=self._minimum_ratio)


class Cyclic(Policy):
    """The policy of :func:`~lightning_hooks.schedules.cyclic`."""

    needs_length = True

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: float | tuple[float, ...] = (10, 1e-4),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = "cos",
        gamma: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_iteration(self, by_epoch), **kwargs)
        ratios: Any = target_ratio if isinstance(target_ratio, (list, tuple)) else [target_ratio]
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

    @elementwise
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
        """Yield cycles without length."""
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
        """Yield phases without length."""
        return checks.check_one_cycle(self.pct_start, self.three_phase, total)
