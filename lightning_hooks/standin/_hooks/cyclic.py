"""Cyclic and one-cycle policies with mmcv's lists of phases, which old subclasses may change.

The native policies compute a value from the length of the run. mmcv's fill a list before the run
and follow it, so a subclass may replace its phases. These do the same in ``value``; the rest of
the policy (``get_lr``, warm-up, preflight) is native. Two helpers of mmcv's schedules follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import lightning_hooks
from lightning_hooks.hooks.updaters.cyclic import Cyclic, OneCycle
from lightning_hooks.hooks.updaters.param_groups import optimizers_of
from lightning_hooks.hooks.updaters.updater import Updater
from lightning_hooks.schedules.cyclic import ANNEALINGS, one_cycle_ends, one_cycle_ratios
from lightning_hooks.standin._hooks.arguments import AssertsArguments
from lightning_hooks.standin._hooks.policies import MomentumUpdaterHook

__all__ = [
    "CyclicLrUpdaterHook",
    "CyclicMomentumUpdaterHook",
    "OneCycleLrUpdaterHook",
    "OneCycleMomentumUpdaterHook",
    "format_param",
    "get_position_from_periods",
]

Anneal = Callable[[float, float, float], float]


class _Phases(AssertsArguments, Updater):
    """Base of policies that follow a list of phases, under its attribute name in mmcv."""

    phases_as = "lr_phases"
    anneal_strategy: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.anneal_func: Anneal = ANNEALINGS[self.anneal_strategy]
        self._phases = []

    def before_run(self, runner: Any) -> None:
        """Clear the phases of an earlier run, which may have had another length."""
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
    """Phases of a cycle: ``[start, end, ratio at start, ratio at end]``, in iterations."""

    max_iter_per_phase: int | None = None

    def before_run(self, runner: Any) -> None:
        """Read the base values, check the schedule, and write the phases."""
        super().before_run(runner)
        length = self.required_length(self.as_counted(runner)) // self.cyclic_times
        up, (first, last) = int(self.step_ratio_up * length), self.target_ratio
        self.max_iter_per_phase = length
        self._phases = [[0, up, 1, first], [up, length, first, last]]

    def value(self, base: Any, position: int, total: Any) -> float:
        """Return the value by the phases; before they exist, by the length of the run."""
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
    """The native hook with ``lr_phases``, ``max_iter_per_phase`` and ``anneal_func``."""


class CyclicMomentumUpdaterHook(
    _CyclicPhases, lightning_hooks.CyclicMomentumUpdaterHook, MomentumUpdaterHook
):
    """The native hook with ``momentum_phases``, ``max_iter_per_phase`` and ``anneal_func``."""

    phases_as = "momentum_phases"


class _OneCyclePhases(_Phases, OneCycle):
    """Phases of one cycle, each with the iteration at which it ends."""

    total_steps: int | None = None

    def before_run(self, runner: Any) -> None:
        """Read the base values, check the schedule, and write the phases."""
        super().before_run(runner)
        total = self.total_steps or self.required_length(self.as_counted(runner))
        ends, turns = one_cycle_ends(total, self.pct_start, self.three_phase), self._turns()
        pairs = zip(ends, pairwise(turns), strict=True)
        self._phases = [self._phase(end, *pair) for end, pair in pairs]

    def value(self, base: Any, position: int, total: Any) -> float:
        """Return the value by the phases; before they exist, by the length of the run."""
        begin: float = 0
        for phase in self._phases:
            end, first, last = self._read(phase, base)
            if position <= end or phase is self._phases[-1]:
                share = 1 if position >= end else (position - begin) / (end - begin)
                return self.anneal_func(first, last, share)
            begin = end
        return super().value(base, position, total)

    def _turns(self) -> tuple[Any, ...]:
        """Return the boundary values of the phases, in order."""
        raise NotImplementedError

    def _phase(self, end: float, first: Any, last: Any) -> Any:
        """Return a phase in mmcv's form."""
        return [end, first, last]

    def _read(self, phase: Any, base: Any) -> tuple[float, float, float]:
        """Return a phase's end, first value and last value."""
        end, first, last = phase
        return end, base * first, base * last


class OneCycleLrUpdaterHook(_OneCyclePhases, lightning_hooks.OneCycleLrUpdaterHook):
    """The native hook with ``anneal_func`` and ``lr_phases``: ``[end, ratio, ratio]``."""

    @property
    def _max_lr(self) -> Any:
        return self.max_lr

    def _turns(self) -> tuple[Any, ...]:
        return one_cycle_ratios(self.div_factor, self.final_div_factor, self.three_phase)


class OneCycleMomentumUpdaterHook(
    _OneCyclePhases, lightning_hooks.OneCycleMomentumUpdaterHook, MomentumUpdaterHook
):
    """The native hook with ``momentum_phases`` and ``anneal_func``.

    A phase is a dict of ``end_iter``, ``start_momentum`` and ``end_momentum``; the latter two name
    one of the group's ``base_momentum`` and ``max_momentum``.
    """

    phases_as = "momentum_phases"
    use_beta1: bool

    def before_run(self, runner: Any) -> None:
        """Write the phases; set ``use_beta1`` if an optimizer's momentum is its first beta."""
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
    """Return the index of the period that contains an iteration.

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
    """Return a setting for each parameter group.

    Args:
        name: The optimizer's name, looked up if ``param`` is a dict.
        optim: The optimizer.
        param: A number for all groups, a list, or a dict by optimizer.
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
