"""The momentum policies."""

from __future__ import annotations

from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.param_groups import check_per_group, per_group
from lightning_hooks.hooks.updaters.policies import (
    Annealing,
    Cyclic,
    Exp,
    Fixed,
    Inv,
    OneCycle,
    Poly,
    Step,
)

__all__ = [
    "CosineAnnealingMomentumUpdaterHook",
    "CyclicMomentumUpdaterHook",
    "ExpMomentumUpdaterHook",
    "FixedMomentumUpdaterHook",
    "InvMomentumUpdaterHook",
    "LinearAnnealingMomentumUpdaterHook",
    "OneCycleMomentumUpdaterHook",
    "PolyMomentumUpdaterHook",
    "StepMomentumUpdaterHook",
]


@HOOKS.register_module()
class FixedMomentumUpdaterHook(Fixed, MomentumUpdaterHook):
    """Keeps the momentum, for a warm-up alone: :func:`~lightning_hooks.schedules.fixed`.

    Args:
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


@HOOKS.register_module()
class StepMomentumUpdaterHook(Step, MomentumUpdaterHook):
    """Decays the momentum at milestones: :func:`~lightning_hooks.schedules.step`.

    ``max(base * gamma**k, min_momentum)``, where ``k`` is the number of milestones passed.

    Args:
        step: Epochs (iterations, with ``by_epoch=False``) between decays, or a list of milestones.
        gamma: The factor at each.
        min_momentum: The lowest momentum.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: for a step that is not positive.
        TypeError: for a step that is neither an int nor a list of ints.
    """

    def __init__(
        self,
        step: int | list[int],
        gamma: float = 0.5,
        min_momentum: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(step, gamma, min_momentum, **kwargs)


@HOOKS.register_module()
class ExpMomentumUpdaterHook(Exp, MomentumUpdaterHook):
    """Decays the momentum every epoch or iteration: :func:`~lightning_hooks.schedules.exp`.

    Args:
        gamma: The factor of each epoch (iteration, with ``by_epoch=False``).
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


@HOOKS.register_module()
class PolyMomentumUpdaterHook(Poly, MomentumUpdaterHook):
    """Decays the momentum by a power of what is left: :func:`~lightning_hooks.schedules.poly`.

    Args:
        power: The exponent.
        min_momentum: The momentum at the end.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """

    def __init__(self, power: float = 1.0, min_momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(power, min_momentum, **kwargs)


@HOOKS.register_module()
class InvMomentumUpdaterHook(Inv, MomentumUpdaterHook):
    """Decays the momentum hyperbolically: :func:`~lightning_hooks.schedules.inv`.

    Args:
        gamma: The speed of the decay.
        power: The exponent.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.
    """


class AnnealingMomentum(Annealing, MomentumUpdaterHook):
    """A policy of a curve to a minimum, given as a momentum or as a ratio of the base."""

    def __init__(
        self,
        min_momentum: float | None = None,
        min_momentum_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_momentum, min_momentum_ratio, **kwargs)


@HOOKS.register_module()
class CosineAnnealingMomentumUpdaterHook(AnnealingMomentum):
    """Anneals the momentum along half a cosine: :func:`~lightning_hooks.schedules.cosine`.

    Args:
        min_momentum: The momentum at the end; give this or the ratio.
        min_momentum_ratio: The same as a ratio of each group's base momentum.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    curve = staticmethod(schedules.cosine)


@HOOKS.register_module()
class LinearAnnealingMomentumUpdaterHook(AnnealingMomentum):
    """Anneals the momentum along a line: :func:`~lightning_hooks.schedules.linear`.

    Args:
        min_momentum: The momentum at the end; give this or the ratio.
        min_momentum_ratio: The same as a ratio of each group's base momentum.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        ValueError: if both or neither of the two are given.
    """

    curve = staticmethod(schedules.linear)


@HOOKS.register_module()
class CyclicMomentumUpdaterHook(Cyclic, MomentumUpdaterHook):
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

    :func:`~lightning_hooks.schedules.one_cycle_momentum`; the optimizer's own is not used.

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
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

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
        self.bounds = {"max_momentum": max_momentum, "base_momentum": base_momentum}
        for name, bound in self.bounds.items():
            check_per_group(name, bound)

    def bases_of(self, name: str, optimizer: Any) -> list[tuple[float, float]]:
        """Return the highest and the lowest momentum of each group."""
        super().bases_of(name, optimizer)
        columns = [per_group(bound, self.bounds[bound], name, optimizer) for bound in self.bounds]
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
