"""``LrUpdaterHook``: sets learning rates by a schedule, with a warm-up on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import mul
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.hook import Hook
from lightning_hooks.iter_runner import IterRunner
from lightning_hooks.schedules import check_warm_up, warm_up

__all__ = ["LrUpdaterHook", "Rates"]

Rates = Sequence[float] | dict[str, Sequence[float]]
"""A number for each parameter group; by name, where there are several optimizers."""


class LrUpdaterHook(Hook):
    """The base of the learning rate policies: override ``get_lr``, or ``schedule``.

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

    Raises:
        ValueError: for an unknown warm-up, a length below 1, or a ratio outside (0, 1].

    Source: mmcv's ``LrUpdaterHook``.

    Note:
        Departures from mmcv: an epoch of the warm-up has as many iterations as are trained
        (``limit_train_batches`` counts), and ``warmup_by_epoch`` works where iterations are counted
        (mmcv fails). A run that would never move the rate, or lacks the length needed, says so.
    """

    reads_step = False

    # for subclasses that do not call super().__init__()
    by_epoch: bool = True
    warmup: str | None = None
    warmup_iters: int | None = 0
    warmup_ratio: float = 0.1
    warmup_by_epoch: bool = False
    warmup_epochs: int | None = None

    base_lr: Rates = ()
    """The ``initial_lr`` of every group."""

    regular_lr: Rates = ()
    """The rates without warm-up."""

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
    ) -> None:
        super().__init__()
        check_warm_up(warmup, warmup_iters, warmup_ratio)
        self.by_epoch = by_epoch
        self.warmup = warmup
        self.warmup_ratio = warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None
        self.warmup_iters = None if warmup_by_epoch else warmup_iters

    # -- what policies override --------------------------------------------------------------

    def schedule(self, runner: Any) -> Callable[[float], float]:
        """Return the policy as it is now: the rate as a function of the base rate."""
        raise NotImplementedError(f"{type(self).__name__} has neither get_lr nor schedule")

    def get_lr(self, runner: Any, base_lr: float) -> float:
        """Return the rate of a group, without warm-up."""
        return self.schedule(runner)(base_lr)

    def get_regular_lr(self, runner: Any) -> Rates:
        """Return the rates of all groups, without warm-up."""
        if type(self).get_lr is not LrUpdaterHook.get_lr:
            return _of_each(partial(self.get_lr, runner), self.base_lr)
        rate = self.schedule(runner)  # most groups share their base: computed once for each
        return _of_each({base: rate(base) for base in _flat(self.base_lr)}.get, self.base_lr)

    def get_warmup_lr(self, cur_iters: int) -> Rates:
        """Return the rates of all groups, with warm-up."""
        assert self.warmup_iters is not None
        factor = warm_up(cur_iters, self.warmup_iters, kind=self.warmup, ratio=self.warmup_ratio)
        return _of_each(partial(mul, factor), self.regular_lr)

    # -- the points --------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Take every group's ``initial_lr`` as its base."""
        optimizer = runner.optimizer
        if isinstance(optimizer, dict):
            self.base_lr = {name: _initial_lr(one) for name, one in optimizer.items()}
        else:
            self.base_lr = _initial_lr(optimizer)
        if self.warmup_epochs is not None:
            self.warmup_iters = None  # another loader than in the fit before, perhaps
        self._warn_of_odd_runs(runner)

    def before_train_epoch(self, runner: Any) -> None:
        """Set the epoch's rates, if they are counted in epochs."""
        if self.by_epoch:
            self.regular_lr = self.get_regular_lr(runner)
            self._set_lr(runner, self.regular_lr)

    def before_train_iter(self, runner: Any) -> None:
        """Set the iteration's rates, if counted in iterations or warming up."""
        if not self.by_epoch:
            self.regular_lr = self.get_regular_lr(runner)
        elif self.warmup is None:
            return
        now, length = runner.iter, self._warmup_length(runner)
        if now < length:
            self._set_lr(runner, self.get_warmup_lr(now))
        elif not self.by_epoch or now == length:
            self._set_lr(runner, self.regular_lr)

    # -- helpers -----------------------------------------------------------------------------

    def _set_lr(self, runner: Any, lr_groups: Rates) -> None:
        optimizer = runner.optimizer
        by_name = lr_groups if isinstance(lr_groups, dict) else {None: lr_groups}
        for name, rates in by_name.items():
            groups = (optimizer if name is None else optimizer[name]).param_groups
            for group, rate in zip(groups, rates, strict=False):
                group["lr"] = rate

    def _position(self, runner: Any) -> int:
        return int(runner.epoch if self.by_epoch else runner.iter)

    def _total(self, runner: Any) -> int:
        total = runner.max_epochs if self.by_epoch else runner.max_iters
        if total is None:
            limit = "max_epochs" if self.by_epoch else "max_steps, or a loader with a length"
            raise ValueError(f"{type(self).__name__} needs the length of the run: give {limit}")
        return int(total)

    def _warmup_length(self, runner: Any) -> int:
        if self.warmup is None:
            return 0
        if self.warmup_iters is None:
            batches = runner.trainer.num_training_batches
            if batches == float("inf"):
                raise ValueError("warmup_by_epoch=True needs a training loader with a length")
            self.warmup_iters = (self.warmup_epochs or 0) * int(batches)
        return self.warmup_iters

    def _warn_of_odd_runs(self, runner: Any) -> None:
        me = type(self).__name__
        if self.by_epoch and isinstance(runner, IterRunner):
            rank_zero_warn(
                f"{me}(by_epoch=True) never moves the learning rate where iterations are counted"
            )
        for config in runner.trainer.lr_scheduler_configs:
            optimizer = config.scheduler.optimizer
            rank_zero_warn(
                f"{type(config.scheduler).__name__} of {type(optimizer).__name__} with "
                f"{len(optimizer.param_groups)} parameter group(s) and {me} both set the learning "
                f"rate: {me} wins in every step it sets; leave one of them out"
            )


def _flat(rates: Rates) -> set[float]:
    return set(chain(*rates.values()) if isinstance(rates, dict) else rates)


def _of_each(rate: Callable[[float], Any], bases: Rates) -> Rates:
    if isinstance(bases, dict):
        return {name: list(map(rate, group)) for name, group in bases.items()}
    return list(map(rate, bases))


def _initial_lr(optimizer: Any) -> list[float]:
    return [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
