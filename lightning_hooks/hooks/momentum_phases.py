"""The momentum policies of several phases: cyclic and one cycle."""

from __future__ import annotations

from typing import Any

from lightning_hooks import schedules
from lightning_hooks.hooks.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.param_groups import check_spread, spread
from lightning_hooks.hooks.phase_policies import Cyclic, OneCycle
from lightning_hooks.registry import HOOKS

__all__ = ["CyclicMomentumUpdaterHook", "OneCycleMomentumUpdaterHook"]


@HOOKS.register_module()
class CyclicMomentumUpdaterHook(Cyclic, MomentumUpdaterHook):
    """Moves the momentum in cycles: :func:`~lightning_hooks.schedules.cyclic`.

    Args:
        by_epoch: False: this policy counts iterations.
        target_ratio: The two targets of a cycle as ratios of the base momentum; a number ``r``
            alone means ``(r, r / 1e5)``.
        cyclic_times: How many cycles.
        step_ratio_up: The share of a cycle, in [0, 1), until the first target.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        gamma: How much of the first target's distance to the base is left in each next cycle,
            in (0, 1].
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run with fewer
            iterations than cycles.

    Note:
        Departure from mmcv: the ratios may be a list, as they come from YAML or JSON.
    """

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
        super().__init__(
            by_epoch, target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma, **kwargs
        )


@HOOKS.register_module()
class OneCycleMomentumUpdaterHook(OneCycle, MomentumUpdaterHook):
    """Goes down to a lowest momentum and up again, while the learning rate goes up and down.

    :func:`~lightning_hooks.schedules.one_cycle_momentum`; what the optimizer has is not looked at.

    =============  ======================
    writes         in every group, too
    =============  ======================
    base_momentum  the lowest momentum
    max_momentum   the highest
    =============  ======================

    Args:
        base_momentum: The lowest momentum: a number, a list with one for each parameter group, or
            a dict of these by the optimizer's name.
        max_momentum: The highest, in the same ways.
        pct_start: The share of the run, in [0, 1], on the way down.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        three_phase: Come back as fast as it went down, and stay there.
        kwargs: Those of :class:`~lightning_hooks.hooks.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run where a phase has
            no length (mmcv divides by zero there).
    """

    def __init__(
        self,
        base_momentum: float | list[float] | dict[str, Any] = 0.85,
        max_momentum: float | list[float] | dict[str, Any] = 0.95,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(pct_start, anneal_strategy, three_phase, **kwargs)
        for name, given in (("base_momentum", base_momentum), ("max_momentum", max_momentum)):
            check_spread(name, given)
        self.bounds = {"max_momentum": max_momentum, "base_momentum": base_momentum}

    def bases_of(self, name: str, optimizer: Any) -> list[tuple[float, float]]:
        """Return the highest and the lowest momentum of each group."""
        super().bases_of(name, optimizer)
        columns = [spread(bound, self.bounds[bound], name, optimizer) for bound in self.bounds]
        bounds = list(zip(*columns, strict=True))
        for group, pair in zip(optimizer.param_groups, bounds, strict=True):
            group.update(zip(self.bounds, pair, strict=True))
        return bounds

    def value(self, base: Any, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.one_cycle_momentum` of a pair of bounds."""
        return schedules.one_cycle_momentum(
            base,
            position,
            total,
            pct_start=self.pct_start,
            anneal_strategy=self.anneal_strategy,
            three_phase=self.three_phase,
        )
