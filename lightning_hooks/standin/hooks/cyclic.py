"""Cyclic and one cycle as mmcv has them: with the lists of phases that subclasses read and change.

Ours compute a value from the length of the run, and keep nothing. mmcv's fill a list before the
run and follow that, so an old subclass may put phases of its own into it. These do the same, by
way of ``value``, where the rest of the policy (``get_lr``, warm-up, the look ahead) is ours.

Two helpers of mmcv's schedules that old subclasses import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import lightning_hooks
from lightning_hooks.hooks.updaters.param_groups import optimizers_of
from lightning_hooks.hooks.updaters.policies import Cyclic, OneCycle, Policy
from lightning_hooks.schedules.cyclic import ANNEALINGS, one_cycle_ends, one_cycle_ratios

__all__ = [
    "CyclicLrUpdaterHook",
    "CyclicMomentumUpdaterHook",
    "OneCycleLrUpdaterHook",
    "OneCycleMomentumUpdaterHook",
    "format_param",
    "get_position_from_periods",
]

Anneal = Callable[[float, float, float], float]


class _Phases(Policy):
    """A list of phases, by the name that it has in mmcv, and the curve within each."""

    phases_as = "lr_phases"
    anneal_strategy: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.anneal_func: Anneal = ANNEALINGS[self.anneal_strategy]
        self._phases = []

    def before_run(self, runner: Any) -> None:
        """Forget the phases of a run before, which may have been of another length."""
        self._phases = []
        super().before_run(runner)

    @property
    def _phases(self) -> list[Any]:
        phases: list[Any] = getattr(self, self.phases_as)
        return phases

    @_phases.setter
    def _phases(self, phases: list[Any]) -> None:
        setattr(self, self.phases_as, phases)


class _CyclicPhases(_Phases, Cyclic):
    """A cycle's ``[start, end, ratio at its start, ratio at its end]``, in iterations."""

    max_iter_per_phase: int | None = None

    def before_run(self, runner: Any) -> None:
        """Take the bases, look ahead, and write the phases."""
        super().before_run(runner)
        length = self.required_length(self.as_counted(runner)) // self.cyclic_times
        up, (first, last) = int(self.step_ratio_up * length), self.target_ratio
        self.max_iter_per_phase = length
        self._phases = [[0, up, 1, first], [up, length, first, last]]

    def value(self, base: Any, position: int, total: Any) -> float:
        """Follow the phases; before they are written, compute from the length of the run."""
        if not self._phases or not self.max_iter_per_phase:
            return super().value(base, position, total)
        cycle, now = divmod(position, self.max_iter_per_phase)
        scale = self.gamma**cycle
        for start, end, first, last in self._phases:
            if start <= now < end:
                if start == 0:
                    last = 1 - scale + last * scale
                else:
                    first = 1 - scale + first * scale
                return self.anneal_func(base * first, base * last, (now - start) / (end - start))
        raise ValueError(f"no phase of {self._phases} holds iteration {now} of a cycle")


class CyclicLrUpdaterHook(_CyclicPhases, lightning_hooks.CyclicLrUpdaterHook):
    """Ours, with ``lr_phases``, ``max_iter_per_phase`` and ``anneal_func``."""


class CyclicMomentumUpdaterHook(_CyclicPhases, lightning_hooks.CyclicMomentumUpdaterHook):
    """Ours, with ``momentum_phases``, ``max_iter_per_phase`` and ``anneal_func``."""

    phases_as = "momentum_phases"


class _OneCyclePhases(_Phases, OneCycle):
    """The phases of one cycle, each with the iteration at which it ends."""

    total_steps: int | None = None

    def before_run(self, runner: Any) -> None:
        """Take the bases, look ahead, and write the phases."""
        super().before_run(runner)
        total = self.total_steps or self.required_length(self.as_counted(runner))
        ends, turns = one_cycle_ends(total, self.pct_start, self.three_phase), self._turns()
        pairs = zip(ends, pairwise(turns), strict=True)
        self._phases = [self._phase(end, *pair) for end, pair in pairs]

    def value(self, base: Any, position: int, total: Any) -> float:
        """Follow the phases; before they are written, compute from the length of the run."""
        begin: float = 0
        for phase in self._phases:
            end, first, last = self._read(phase, base)
            if position <= end or phase is self._phases[-1]:
                share = 1 if position >= end else (position - begin) / (end - begin)
                return self.anneal_func(first, last, share)
            begin = end
        return super().value(base, position, total)

    def _turns(self) -> tuple[Any, ...]:
        """Return what a phase begins and ends with, for all of them in a row."""
        raise NotImplementedError

    def _phase(self, end: float, first: Any, last: Any) -> Any:
        """Return a phase as mmcv writes it."""
        return [end, first, last]

    def _read(self, phase: Any, base: Any) -> tuple[float, float, float]:
        """Return a phase's end and the values between which it goes."""
        end, first, last = phase
        return end, base * first, base * last


class OneCycleLrUpdaterHook(_OneCyclePhases, lightning_hooks.OneCycleLrUpdaterHook):
    """Ours, with ``lr_phases`` and ``anneal_func``: ``[end, ratio at its start, at its end]``."""

    @property
    def _max_lr(self) -> Any:
        return self.max_lr

    def _turns(self) -> tuple[Any, ...]:
        return one_cycle_ratios(self.div_factor, self.final_div_factor, self.three_phase)


class OneCycleMomentumUpdaterHook(_OneCyclePhases, lightning_hooks.OneCycleMomentumUpdaterHook):
    """Ours, with ``momentum_phases`` and ``anneal_func``.

    A phase is a dict: ``end_iter``, and in ``start_momentum`` and ``end_momentum`` which of the
    group's ``base_momentum`` and ``max_momentum`` it goes between.
    """

    phases_as = "momentum_phases"
    use_beta1: bool

    def before_run(self, runner: Any) -> None:
        """The same; also note whether a momentum is the first of an optimizer's betas."""
        super().before_run(runner)
        for _, optimizer in optimizers_of(runner.optimizer):
            self.use_beta1 = "betas" in optimizer.defaults

    @property
    def _base_momentum(self) -> Any:
        return self.bounds["base_momentum"]

    @property
    def _max_momentum(self) -> Any:
        return self.bounds["max_momentum"]

    def _turns(self) -> tuple[Any, ...]:
        low, high = "base_momentum", "max_momentum"
        return (high, low, high, high) if self.three_phase else (high, low, high)

    def _phase(self, end: float, first: Any, last: Any) -> Any:
        return {"end_iter": end, "start_momentum": first, "end_momentum": last}

    def _read(self, phase: Mapping[str, Any], base: Any) -> tuple[float, float, float]:
        bounds = dict(zip(("max_momentum", "base_momentum"), base, strict=True))
        start, end = bounds[phase["start_momentum"]], bounds[phase["end_momentum"]]
        return phase["end_iter"], start, end


def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """Return the number of the period that an iteration is in, by where the periods end.

    >>> get_position_from_periods(40, [40, 60, 80])
    1
    """
    for index, end in enumerate(cumulative_periods):
        if iteration < end:
            return index
    raise ValueError(
        f"Current iteration {iteration} exceeds cumulative_periods {cumulative_periods}"
    )


def format_param(name: str, optim: Any, param: Any) -> Any:
    """Return a setting of each parameter group: a number for all, a list, or an optimizer's own.

    Args:
        name: The optimizer's name, where ``param`` is a dict for several.
        optim: The optimizer.
        param: The setting.
    """
    if isinstance(param, (int, float)):
        return [param] * len(optim.param_groups)
    if isinstance(param, (list, tuple)):
        if len(param) != len(optim.param_groups):
            raise ValueError(
                f"expected {len(optim.param_groups)} values for {name}, got {len(param)}"
            )
        return param
    if not (isinstance(param, Mapping) and name in param):
        raise KeyError(f"there is no value for {name} in {param}")
    return param[name]
