"""``LrUpdaterHook``: sets learning rates by a schedule, with a warm-up on top."""

from __future__ import annotations

from functools import partial
from operator import attrgetter, mul
from typing import Any

import torch

from lightning_hooks.hooks.updaters.base import Updater
from lightning_hooks.hooks.updaters.param_groups import Values, of_each

__all__ = ["LrUpdaterHook"]

LARGEST_RATE: float = torch.finfo(torch.float32).max
OVERRIDABLE = {
    "_set_lr",
    "base_lr",
    "get_lr",
    "get_regular_lr",
    "get_warmup_lr",
    "length_of",
    "regular_lr",
    "regular_values",
    "set_values",
    "warm_values",
}
"""What an old hook may say instead, one by one."""


class LrUpdaterHook(Updater):
    """The base of the learning rate policies: override ``get_lr``, or ``value``.

    Every rate is computed from the group's ``initial_lr`` (which the optimizer's own state holds),
    the counters and the length of the run. Nothing else is kept, so it is right after any resume,
    and when ``max_epochs`` changes.

    =============  =============================================
    writes         in every parameter group
    =============  =============================================
    lr             ``get_lr(runner, initial_lr)`` times warm-up
    initial_lr     the ``lr`` found first, if there is none yet
    =============  =============================================

    Args:
        by_epoch: Count in epochs (the rate changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``;
            see :func:`~lightning_hooks.schedules.warm_up`.
        warmup_iters: How long it takes.
        warmup_ratio: The share of the policy's rate from which it starts, in (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations: in the policy with
            ``by_epoch=False``, and in the warm-up. With accumulated gradients ``warmup_iters``,
            ``total_steps``, ``periods`` and the like are then so many steps, and the length of the
            run (mmcv's ``max_iters``) is its number of steps:
            :func:`~lightning_hooks.engine.runner.optimizer_steps.steps_of_run`. Steps that the
            Trainer's gradient scaler skips are left out, but for optimizers with ``fused=True``,
            which do not tell. ``get_lr(runner, base_lr)`` sees a runner that is counted so.

    Raises:
        TypeError: for a number or a bool that is none.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where nothing is counted in iterations; at the start of a run, if a policy
            by step needs its length and only the module knows when it steps.

    Source: mmcv's ``LrUpdaterHook``.

    Note:
        Departures from mmcv: an epoch of the warm-up has as many iterations as are trained
        (``limit_train_batches`` counts), and ``warmup_by_epoch`` works where iterations are counted
        (mmcv fails). Before the first iteration the whole schedule is looked at: what would fail
        later, or be negative, is refused with the optimizer and its groups, and what is odd (a
        rate that never moves, milestones after the end or out of order, a scheduler of the
        module's) is said. An argument that is no number, or no bool, is refused at construction
        (there it fails later).
    """

    quantity = "learning rate"

    _minimum = property(attrgetter("min_lr"))
    _ratio = property(attrgetter("min_lr_ratio"))

    _plain = False
    """Whether iterations are counted, there is one optimizer and nothing is overridden."""

    _rate: float | None = None
    """The rate without warm-up where there is one group: less to make than a list."""

    # -- the points ---------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Take the bases, and look ahead."""
        super().before_run(runner)
        cls, own = type(self), vars(self)
        same = all(getattr(cls, name) is getattr(LrUpdaterHook, name) for name in OVERRIDABLE)
        same &= not (own.keys() & OVERRIDABLE or isinstance(self.base, dict))
        self._plain = same and not (self.by_epoch or self.by_step)
        self._rate = None

    def before_train_iter(self, runner: Any) -> None:
        """Set the iteration's rates, if counted in iterations or warming up."""
        if not self._plain:
            self._rate = None
            super().before_train_iter(runner)
            return
        # the same in one go: this is the way of nearly every run, and of every iteration
        now, total = runner.iter, runner.max_iters
        try:
            [base] = self.base
        except ValueError:  # there are several groups
            self._set_several(runner, now, total)
            return
        self._rate = rate = self.value(base, now, total)
        if self.warmup is not None and now < self._warmup_length(runner):
            rate *= self._factor(now)
        runner.optimizer.param_groups[0]["lr"] = rate

    def _set_several(self, runner: Any, now: int, total: Any) -> None:
        self.regular_lr = rates = self._of_all(self.base, now, total)  # type: ignore[arg-type]
        if self.warmup is not None and now < self._warmup_length(runner):
            rates = list(map(partial(mul, self._factor(now)), rates))
        for group, rate in zip(runner.optimizer.param_groups, rates):  # noqa: B905
            group["lr"] = rate

    # -- by mmcv's names ---------------------------------------------------------------------

    @property
    def base_lr(self) -> Values:
        """The ``initial_lr`` of every group."""
        return self.base

    @base_lr.setter
    def base_lr(self, value: Values) -> None:
        self.base = value
        self._plain = self._plain and not isinstance(value, dict)

    @property
    def regular_lr(self) -> Values:
        """The rates without warm-up."""
        return self.regular if self._rate is None else [self._rate]

    @regular_lr.setter
    def regular_lr(self, value: Values) -> None:
        self.regular, self._rate = value, None

    def get_lr(self, runner: Any, base_lr: float) -> float:
        """Return the rate of a group, without warm-up."""
        return self.value(base_lr, *self._progress(runner))

    def get_regular_lr(self, runner: Any) -> Values:
        """Return the rates of all groups, without warm-up."""
        if getattr(self.get_lr, "__func__", None) is LrUpdaterHook.get_lr:
            return self._from_policy(runner, self.base)
        return of_each(partial(self.get_lr, runner), self.base)

    def get_warmup_lr(self, cur_iters: int) -> Values:
        """Return the rates of all groups, with warm-up."""
        return of_each(partial(mul, self._factor(cur_iters)), self.regular_lr)

    def _set_lr(self, runner: Any, lr_groups: Values) -> None:
        optimizer = runner.optimizer
        if isinstance(lr_groups, dict):
            pairs = [(optimizer[name].param_groups, rates) for name, rates in lr_groups.items()]
        else:
            pairs = [(optimizer.param_groups, lr_groups)]
        for groups, rates in pairs:
            # groups added during the run have no rate; strict=False would double the time of zip
            for group, rate in zip(groups, rates):  # noqa: B905
                group["lr"] = rate

    # -- by ours -----------------------------------------------------------------------------

    def bases_of(self, name: str, optimizer: Any) -> list[float]:
        """Return the ``initial_lr`` of each group."""
        return [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]

    def regular_values(self, runner: Any) -> Values:
        """Return the rates without warm-up."""
        return self.get_regular_lr(runner)

    def warm_values(self, now: int) -> Values:
        """Return the rates with warm-up."""
        return self.get_warmup_lr(now)

    def warmed(self, value: float, factor: float) -> float:
        """A warm-up multiplies the rate."""
        return value * factor

    def judges(self) -> bool:
        """Whether what will be set is known beforehand: what :meth:`value` says."""
        cls = type(self)
        same = cls.get_lr is LrUpdaterHook.get_lr and "get_lr" not in vars(self)
        return same and cls._set_lr is LrUpdaterHook._set_lr and super().judges()

    def allows(self, value: Any) -> bool:
        """Whether it is not negative, and one that optimizers compute with."""
        return isinstance(value, (int, float)) and 0 <= value <= LARGEST_RATE

    def out_of_range(self, where: str, value: Any, when: str) -> str:
        """Say what is wrong with a rate."""
        return (
            f"{type(self).__name__}: the learning rate of {where} would be {value} at {when}, "
            f"it must be between 0 and {LARGEST_RATE:.2g}"
        )

    def set_values(self, runner: Any, values: Values) -> None:
        """Write the rates."""
        self._set_lr(runner, values)
