"""The learning rate policies of several phases: cyclic and one cycle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.param_groups import check_per_group, elementwise, per_group
from lightning_hooks.hooks.updaters.policies import Cyclic, OneCycle, is_int
from lightning_hooks.utils.arguments import LARGEST, check_number

__all__ = ["CyclicLrUpdaterHook", "OneCycleLrUpdaterHook"]


@HOOKS.register_module()
class CyclicLrUpdaterHook(Cyclic, LrUpdaterHook):
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
        Departure from mmcv: the ratios may be a list, as they come from YAML or JSON.
    """


@HOOKS.register_module()
class OneCycleLrUpdaterHook(OneCycle, LrUpdaterHook):
    """Goes up to a highest rate and down again: :func:`~lightning_hooks.schedules.one_cycle`.

    The base rate is ``max_lr / div_factor``, not what the optimizer has.

    Args:
        max_lr: The highest rate: a number, a list with one for each parameter group, or a dict of
            these by the optimizer's name.
        total_steps: Iterations that the cycle takes, at least those of the run; None for these.
        pct_start: The share of them, in [0, 1], on the way up.
        anneal_strategy: The curve: ``"cos"`` or ``"linear"``.
        div_factor: The first rate is ``max_lr`` divided by this.
        final_div_factor: The last rate is the first divided by this.
        three_phase: Come back to the first rate as fast as it went up, and then go to the last.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, and at the start of a run that is longer
            than ``total_steps``, or where a phase has no length (mmcv divides by zero there).
    """

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
        super().__init__(pct_start, anneal_strategy, three_phase, **kwargs)
        check_per_group("max_lr", max_lr)
        if total_steps is not None and not (is_int(total_steps) and 0 < total_steps <= LARGEST):
            raise ValueError(f"total_steps must be an int of at least 1, got {total_steps!r}")
        check_number("div_factor", div_factor, above=0)
        check_number("final_div_factor", final_div_factor, above=0)
        self.max_lr = max_lr
        self.total_steps = total_steps
        self.needs_length = total_steps is None
        self.div_factor = div_factor
        self.final_div_factor = final_div_factor

    def bases_of(self, name: str, optimizer: Any) -> list[float]:
        """Return the rate at the start of the cycle for each group."""
        bases = [lr / self.div_factor for lr in per_group("max_lr", self.max_lr, name, optimizer)]
        for group, base in zip(optimizer.param_groups, bases, strict=True):
            group.setdefault("initial_lr", base)
        return bases

    @elementwise
    def value(self, base: float, position: int, total: Any) -> float:
        """Return :func:`~lightning_hooks.schedules.one_cycle`."""
        return schedules.one_cycle(
            base,
            position,
            self.total_steps or total,
            pct_start=self.pct_start,
            anneal_strategy=self.anneal_strategy,
            div_factor=self.div_factor,
            final_div_factor=self.final_div_factor,
            three_phase=self.three_phase,
        )

    def check(self, total: int) -> Iterator[str]:
        """Yield phases without length; raise ValueError for iterations after the cycle."""
        if self.total_steps is not None and self.total_steps < total:
            raise ValueError(
                f"total_steps={self.total_steps} must not be less than "
                f"the {total} {self.iteration_unit}s of the run"
            )
        return super().check(self.total_steps or total)
