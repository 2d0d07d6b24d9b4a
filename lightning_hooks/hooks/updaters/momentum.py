"""``MomentumUpdaterHook``: the base of the hooks that set momenta by a schedule."""

from __future__ import annotations

import math
from typing import Any

from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.hooks.updaters.param_groups import Values
from lightning_hooks.hooks.updaters.updater import Quantity, Updater
from lightning_hooks.utils.attributes import alias

__all__ = ["MomentumUpdaterHook"]


def _read(group: dict[str, Any]) -> Any:
    return group.get("momentum", group.get("betas", (None,))[0])


def _warm_up(factor: float, momentum: Any) -> Any:
    return momentum / factor


MOMENTUM = Quantity(
    "momentum",
    "momentum",
    _read,
    "neither momentum nor betas",
    highest=math.nextafter(1, 0),
    valid_range="in [0, 1)",
    warm_up=_warm_up,
)


class MomentumUpdaterHook(Updater):
    """The base of the momentum policies: override ``get_momentum``.

    A group's momentum is ``momentum``, or else the first of ``betas`` (Adam). The value is computed
    from the group's ``initial_momentum``, the counters and the length of the run.

    ================  ======================================================
    writes            in every parameter group
    ================  ======================================================
    momentum          ``get_momentum(runner, initial_momentum)`` / warm-up
    betas             the same for the first beta; the others stay
    initial_momentum  the first momentum, if missing
    ================  ======================================================

    Args:
        by_epoch: Count in epochs (the momentum changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``; the momentum is divided by
            ``schedules.warm_up``, so the momentum starts higher and comes down.
        warmup_iters: Length of the warm-up; a float is a share of the run.
        warmup_ratio: The divisor of the policy's momentum at the start of the warm-up, in (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations, as in
            :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.
        total: The policy's own length, as in the same class.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where nothing is counted in iterations.

    Source: mmcv's ``MomentumUpdaterHook``.

    Note:
        Departures from mmcv: a momentum outside [0, 1) is refused before the first iteration, with
        the optimizer and the group (in mmcv a warm-up can bring Adam's beta to 1.0, and Adam
        divides by zero), and so is an optimizer without momentum (in mmcv a KeyError).
        ``warmup_by_epoch`` is new. Betas after the second are kept.
    """

    _quantity = MOMENTUM
    warmup_ratio = 0.9

    base_momentum: Values = alias("_base")
    """The ``initial_momentum`` of every group."""

    regular_momentum: Values = alias("_regular")
    """The momenta without warm-up."""

    min_momentum: Any = alias("_minimum")
    min_momentum_ratio: Any = alias("_minimum_ratio")

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int | float = 0,
        warmup_ratio: float = 0.9,
        warmup_by_epoch: bool = False,
        by_step: bool = False,
        total: int | float | None = None,
    ) -> None:
        super().__init__(
            by_epoch, warmup, warmup_iters, warmup_ratio, warmup_by_epoch, by_step, total
        )

    # -- by mmcv's names ---------------------------------------------------------------------

    def get_momentum(self, runner: Runner, base_momentum: Any) -> float:
        """Return the momentum of a group, without warm-up."""
        return self._value(base_momentum, *self._progress(runner))

    def get_regular_momentum(self, runner: Runner) -> Values:
        """Return the momenta of all groups, without warm-up."""
        return self._regular_values(runner, self.get_momentum, MomentumUpdaterHook.get_momentum)

    get_warmup_momentum = Updater._warm_values

    def _set_momentum(self, runner: Runner, momentum_groups: Values) -> None:
        for where, group, momentum in param_groups.with_groups(runner.optimizer, momentum_groups):
            if not self._is_valid(momentum):
                now = f"{self._iteration_unit} {runner.iter}"
                raise self._range_error(param_groups.describe_groups(*where), momentum, now)
            if "momentum" in group:
                param_groups.fill(group, "momentum", momentum)
            elif "betas" in group:
                betas = [*group["betas"]]
                param_groups.fill(betas, 0, momentum)
                group["betas"] = tuple(betas)

    def _update(self, runner: Runner, is_new: bool = True, warm_up_at: int | None = None) -> None:
        """Set the momenta."""
        if is_new:
            self._regular = self.get_regular_momentum(runner)
        momenta = self._regular if warm_up_at is None else self.get_warmup_momentum(warm_up_at)
        self._set_momentum(runner, momenta)
