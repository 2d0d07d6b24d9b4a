"""Policies of several phases, cyclic and one cycle, for learning rates and for momenta.

A policy for both is written once, as a function: the method ``_value`` of two hooks.
"""

from __future__ import annotations

from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.param_groups import check_per_group, per_group
from lightning_hooks.hooks.updaters.updater import check_share
from lightning_hooks.schedules.cyclic import ANNEALINGS, one_cycle_ends
from lightning_hooks.utils.arguments import check_bool, check_count, check_number, is_finite, shown

__all__ = [
    "CyclicLrUpdaterHook",
    "CyclicMomentumUpdaterHook",
    "OneCycleLrUpdaterHook",
    "OneCycleMomentumUpdaterHook",
]


def check_anneal_strategy(value: str) -> str:
    """Return the name of a curve, checked to be known.

    Raises:
        ValueError: for an unknown name.
    """
    if not isinstance(value, str) or value not in ANNEALINGS:
        raise ValueError(f'anneal_strategy must be "cos" or "linear", got {shown(value)}')
    return value


# -- cyclic ------------------------------------------------------------------------------------


def cyclic(self: Any, base: float, position: int, total: int) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.cyclic` for a hook's arguments."""
    return schedules.cyclic(
        base,
        position,
        total,
        target_ratio=self.target_ratio,
        cyclic_times=self.cyclic_times,
        step_ratio_up=self.step_ratio_up,
        anneal_strategy=self._anneal_strategy,
        gamma=self.gamma,
    )


def check_cycles(self: Any, total: int) -> None:
    """Raise ValueError for cycles without length."""
    if self.cyclic_times > total:
        raise ValueError(f"cyclic_times={self.cyclic_times} is more than the run has: {total}")


def set_cycles(
    hook: Any, target_ratio: Any, cyclic_times: Any, up: Any, anneal_strategy: str, gamma: Any
) -> None:
    """Check and set the arguments of :func:`~lightning_hooks.schedules.cyclic`."""
    ratios: Any = target_ratio if isinstance(target_ratio, (list, tuple)) else [target_ratio]
    if len(ratios) == 1 and is_finite(ratios[0]):
        ratios = (ratios[0], ratios[0] / 1e5)
    if len(ratios) != 2 or not all(map(is_finite, ratios)):
        raise ValueError(f"target_ratio must be a number or two of them, got {shown(target_ratio)}")
    check_count("cyclic_times", cyclic_times)
    check_number("gamma", gamma)
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma must be in (0, 1], got {shown(gamma)}")
    hook.target_ratio = ratios[0], ratios[1]
    hook.cyclic_times = cyclic_times
    hook.step_ratio_up = check_share("step_ratio_up", up, below_one=True)
    hook._anneal_strategy = check_anneal_strategy(anneal_strategy)
    hook.gamma = gamma


@HOOKS.register_module()
class CyclicLrUpdaterHook(LrUpdaterHook):
    """Moves the rate in cycles: :func:`~lightning_hooks.schedules.cyclic`.

    Args:
        by_epoch: False: this policy counts iterations.
        target_ratio: The two targets of a cycle as ratios of the base rate; a number ``r``
            alone means ``(r, r / 1e5)``.
        cyclic_times: The number of cycles.
        step_ratio_up: The share of a cycle, in [0, 1), until the first target.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        gamma: The factor of the first target's distance to the base from cycle to cycle, in
            (0, 1].
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run with fewer
            iterations than cycles.

    Note:
        Departure from mmcv: the ratios may be a list, as from YAML or JSON.
    """

    _value, _check, _needs_length, _counts_iterations = cyclic, check_cycles, True, True
    target_ratio: tuple[float, float]
    cyclic_times: int
    step_ratio_up: float
    gamma: float

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: float | tuple[float, ...] = (10, 1e-4),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = "cos",
        gamma: float = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_epoch, **kwargs)
        set_cycles(self, target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma)


@HOOKS.register_module()
class CyclicMomentumUpdaterHook(MomentumUpdaterHook):
    """Moves the momentum in cycles: :func:`~lightning_hooks.schedules.cyclic`.

    Args:
        by_epoch: False: this policy counts iterations.
        target_ratio: The two targets of a cycle as ratios of the base momentum; a number ``r``
            alone means ``(r, r / 1e5)``.
        cyclic_times: The number of cycles.
        step_ratio_up: The share of a cycle, in [0, 1), until the first target.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        gamma: The factor of the first target's distance to the base from cycle to cycle, in
            (0, 1].
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run with fewer
            iterations than cycles.

    Note:
        Departure from mmcv: the ratios may be a list, as from YAML or JSON.
    """

    _value, _check, _needs_length, _counts_iterations = cyclic, check_cycles, True, True
    target_ratio: tuple[float, float]
    cyclic_times: int
    step_ratio_up: float
    gamma: float

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: float | tuple[float, ...] = (0.85 / 0.95, 1.0),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = "cos",
        gamma: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_epoch, **kwargs)
        set_cycles(self, target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma)


# -- one cycle ---------------------------------------------------------------------------------


def check_phases(self: OneCycleLrUpdaterHook | OneCycleMomentumUpdaterHook, total: int) -> None:
    """Raise ValueError for a first phase without length."""
    if one_cycle_ends(total, self.pct_start, self.three_phase)[0] == 0:
        raise ValueError(
            f"pct_start={self.pct_start} of {total} gives the first phase no length: "
            "take another pct_start, or a longer run"
        )


@HOOKS.register_module()
class OneCycleLrUpdaterHook(LrUpdaterHook):
    """Goes up to a highest rate and down again: :func:`~lightning_hooks.schedules.one_cycle`.

    The base rate is ``max_lr / div_factor``; the optimizer's own rate is not used.

    Args:
        max_lr: The highest rate: a number, a list with a number for each parameter group, or a
            dict of either by the optimizer's name.
        total_steps: Iterations of the cycle, at least the iterations of the run; None for the run.
        pct_start: The share of the cycle, in [0, 1], on the way up.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        div_factor: The first rate is ``max_lr / div_factor``.
        final_div_factor: The last rate is the first rate divided by ``final_div_factor``.
        three_phase: Return to the first rate as fast as on the way up, then go to the last rate.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run longer than
            ``total_steps``, or with a first phase without length (mmcv divides by zero).
    """

    _counts_iterations = True

    def __init__(
        self,
        max_lr: float | list[float] | dict[str, Any],
        total_steps: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"by_epoch": False, **kwargs})
        if self._given_base is not None:
            raise ValueError("the base rate is max_lr / div_factor: leave base_lr out")
        check_bool(three_phase=three_phase)
        self.pct_start = check_share("pct_start", pct_start)
        self._anneal_strategy = check_anneal_strategy(anneal_strategy)
        self.three_phase = three_phase
        check_per_group("max_lr", max_lr)
        if total_steps is not None:
            check_count("total_steps", total_steps)
        self._max_lr = max_lr
        self.total_steps = total_steps
        self._needs_length = total_steps is None
        self.div_factor = check_number("div_factor", div_factor, above=0)
        self.final_div_factor = check_number("final_div_factor", final_div_factor, above=0)
        if isinstance(max_lr, (int, float)):
            self._own_base = max_lr / self.div_factor

    def _bases_of(self, name: str, optimizer: Any) -> list[float]:
        """Return the rate at the start of the cycle for each group."""
        bases = [lr / self.div_factor for lr in per_group("max_lr", self._max_lr, name, optimizer)]
        return self._use_bases(bases, "max_lr / div_factor", optimizer)

    def _value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.one_cycle` over ``total_steps``."""
        return schedules.one_cycle(
            base,
            position,
            self.total_steps or total,
            pct_start=self.pct_start,
            anneal_strategy=self._anneal_strategy,
            div_factor=self.div_factor,
            final_div_factor=self.final_div_factor,
            three_phase=self.three_phase,
        )

    def _check(self, total: int) -> None:
        """Raise ValueError for iterations after the cycle, or a first phase without length."""
        if self.total_steps is not None and self.total_steps < total:
            raise ValueError(
                f"total_steps={self.total_steps} must not be less than "
                f"the {total} {self._iteration_unit}s of the run"
            )
        check_phases(self, self.total_steps or total)


@HOOKS.register_module()
class OneCycleMomentumUpdaterHook(MomentumUpdaterHook):
    """Goes down to a lowest momentum and up again, while the learning rate goes up and down.

    :func:`~lightning_hooks.schedules.one_cycle_momentum`; the optimizer's own momentum is not used.

    =============  ======================
    writes         in every group, too
    =============  ======================
    base_momentum  the lowest momentum
    max_momentum   the highest momentum
    =============  ======================

    Args:
        base_momentum: The lowest momentum: a number, a list with a number for each parameter group,
            or a dict of either by the optimizer's name.
        max_momentum: The highest momentum, in the same ways.
        pct_start: The share of the run, in [0, 1], on the way down.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        three_phase: Return as fast as on the way down, then stay.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run with a first phase
            without length (mmcv divides by zero).
    """

    _check, _needs_length, _counts_iterations = check_phases, True, True

    def __init__(
        self,
        base_momentum: float | list[float] | dict[str, Any] = 0.85,
        max_momentum: float | list[float] | dict[str, Any] = 0.95,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"by_epoch": False, **kwargs})
        check_bool(three_phase=three_phase)
        self.pct_start = check_share("pct_start", pct_start)
        self._anneal_strategy = check_anneal_strategy(anneal_strategy)
        self.three_phase = three_phase
        self._bounds = {"max_momentum": max_momentum, "base_momentum": base_momentum}
        for name, bound in self._bounds.items():
            check_per_group(name, bound)
        if all(isinstance(bound, (int, float)) for bound in self._bounds.values()):
            self._own_base = tuple(self._bounds.values())

    def _value(self, base: tuple[float, float], position: int, total: int) -> float:
        """Return :func:`~lightning_hooks.schedules.one_cycle_momentum`."""
        return schedules.one_cycle_momentum(
            base,
            position,
            total,
            pct_start=self.pct_start,
            anneal_strategy=self._anneal_strategy,
            three_phase=self.three_phase,
        )

    def _bases_of(self, name: str, optimizer: Any) -> list[tuple[float, float]]:
        """Return the highest and the lowest momentum of each group."""
        self._keep_first_values(optimizer)
        self._base_arguments = "max_momentum and base_momentum"
        columns = [per_group(bound, self._bounds[bound], name, optimizer) for bound in self._bounds]
        bounds = list(zip(*columns, strict=True))
        for group, pair in zip(optimizer.param_groups, bounds, strict=True):
            group.update(zip(self._bounds, pair, strict=True))
        return bounds
