"""The policies of several phases, bound to a hook's arguments: for learning rates and momenta."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_bool, check_number, is_finite
from lightning_hooks.hooks.policies import Policy, is_int
from lightning_hooks.hooks.updater import Updater
from lightning_hooks.schedules import checks

__all__ = ["Cyclic", "OneCycle", "by_iteration"]


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
