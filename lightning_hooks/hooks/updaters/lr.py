"""``LrUpdaterHook``: the base of the hooks that set learning rates by a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller, mul
from typing import Any

import torch

from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.hooks.updaters.param_groups import Values
from lightning_hooks.hooks.updaters.updater import Quantity, Updater
from lightning_hooks.utils.attributes import alias

__all__ = ["LrUpdaterHook"]

LARGEST_RATE: float = torch.finfo(torch.float32).max


LEARNING_RATE = Quantity(
    "learning rate",
    "lr",
    methodcaller("get", "lr"),
    "no lr",
    highest=LARGEST_RATE,
    valid_range=f"between 0 and {LARGEST_RATE:.2g}",
    warm_up=mul,
)


class LrUpdaterHook(Updater):
    """The base of the learning rate policies: override ``get_lr``.

    Every rate is computed from the group's base rate (``initial_lr``, a part of the optimizer's
    state), the counters and the length of the run. Nothing else is stored, so the rate is right
    after any resume, and when ``max_epochs`` changes.

    =============  =============================================
    writes         in every parameter group
    =============  =============================================
    lr             ``get_lr(runner, base_lr)`` times warm-up
    initial_lr     the base rate, if missing
    =============  =============================================

    Args:
        by_epoch: Count in epochs (the rate changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``;
            see ``schedules.warm_up``.
        warmup_iters: Length of the warm-up; a float is a share of the run.
        warmup_ratio: The share of the policy's rate at the start of the warm-up, in (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations: in the policy with
            ``by_epoch=False``, and in the warm-up. With accumulated gradients ``warmup_iters``,
            ``total_steps``, ``periods`` and the like then count steps, and so does the length of
            the run (mmcv's ``max_iters``, see ``steps_of_run``) and the runner of
            ``get_lr(runner, base_lr)``. Steps skipped by the Trainer's gradient scaler do not
            count, except of optimizers with ``fused=True``, which do not report a skip.
        base_lr: The base rate, where a scheduler beside the hook has changed the optimizer's: a
            number, a list with a number for each parameter group, or a dict of either by the
            optimizer's name. None for the group's own.
        total: The policy's own length in epochs or iterations, or a float as a share of the run;
            after it the policy's last rate stays. None for the length of the run.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where nothing is counted in iterations; at the start of a run, for a
            schedule that would fail or set an invalid rate later, and for a policy by step that
            needs the length of a run whose module steps the optimizers itself.

    Source: mmcv's ``LrUpdaterHook``.

    Note:
        Departures from mmcv: an epoch of the warm-up has as many iterations as are trained
        (``limit_train_batches`` counts), and ``warmup_by_epoch`` works where iterations are counted
        (mmcv fails). Where epochs differ in length, the present length counts, for cycles, too
        (mmcv: the first's, for cycles and warm-ups). The whole schedule is checked before the first
        iteration: a later failure or a negative rate raises now, with the optimizer and its groups.
        Warnings are a rate that never moves, a warm-up longer than the run, another hook, scheduler
        or callback for the same rates, and a ``LearningRateMonitor`` before the hooks. An argument
        of the wrong type is refused at construction (mmcv fails later).
    """

    _quantity = LEARNING_RATE

    base_lr: Values = alias("_base")
    """The base rate of every group."""

    _given_base: float | list[float] | dict[str, Any] | None = None

    min_lr: Any = alias("_minimum")
    min_lr_ratio: Any = alias("_minimum_ratio")
    warmup_by_epoch: bool = alias("_warmup_by_epoch")
    warmup_epochs: int | None = alias("_warmup_epochs")

    regular_lr: Values = alias("_regular")
    """The rates without warm-up."""

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int | float = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
        by_step: bool = False,
        base_lr: float | list[float] | dict[str, Any] | None = None,
        total: int | float | None = None,
    ) -> None:
        super().__init__(
            by_epoch, warmup, warmup_iters, warmup_ratio, warmup_by_epoch, by_step, total
        )
        if base_lr is not None:
            param_groups.check_per_group("base_lr", base_lr)
        self._given_base = base_lr
        if total is not None and type(self).get_lr is LrUpdaterHook.get_lr:
            self.get_lr = self._get_lr_in_length  # type: ignore[method-assign]

    def before_run(self, runner: Runner) -> None:
        """Read the bases, and check the schedule."""
        super().before_run(runner)
        module = getattr(runner, "module", None)  # none for a schedule drawn without a run
        steps_itself = module is not None and not module.automatic_optimization
        if (
            steps_itself
            and runner.trainer.max_steps >= 0
            and type(self).get_lr is LrUpdaterHook.get_lr
        ):
            self.get_lr = self._get_lr_in_length  # type: ignore[method-assign]

    def _bases_of(self, name: str, optimizer: Any) -> Sequence[Any]:
        """Return ``base_lr``, or the ``initial_lr`` of each group."""
        if self._given_base is None:
            return super()._bases_of(name, optimizer)
        bases = param_groups.per_group("base_lr", self._given_base, name, optimizer)
        return self._use_bases(bases, "base_lr", optimizer)

    def _use_bases(self, bases: list[float], arguments: str, optimizer: Any) -> list[float]:
        """Return given base rates, and write them to groups without ``initial_lr``."""
        self._base_arguments = arguments
        for group, base in zip(optimizer.param_groups, bases, strict=True):
            group.setdefault("initial_lr", base)
        return bases

    # -- by mmcv's names ---------------------------------------------------------------------

    def get_lr(self, runner: Runner, base_lr: float) -> float:
        """Return the rate of a group, without warm-up."""
        if self.by_epoch:
            return self._value(base_lr, runner.epoch, runner.max_epochs)
        return self._value(base_lr, runner.iter, runner.max_iters)

    def _get_lr_in_length(self, runner: Runner, base_lr: float) -> float:
        """Return :meth:`get_lr` with ``total=...``, or in a run that may outlast its length."""
        return self._value(base_lr, *self._progress(runner))

    def get_regular_lr(self, runner: Runner) -> Values:
        """Return the rates of all groups, without warm-up."""
        base = self._base
        # the usual case, in the fastest way
        if type(base) is list and len(base) == 1 and self._own_total is None:
            return [self.get_lr(runner, base[0])]
        return self._regular_values(runner, self.get_lr, LrUpdaterHook.get_lr)

    get_warmup_lr = Updater._warm_values

    def _set_lr(self, runner: Runner, lr_groups: Values) -> None:
        optimizer = runner.optimizer
        if self._fills_tensors:
            for _, group, rate in param_groups.with_groups(optimizer, lr_groups):
                param_groups.fill(group, "lr", rate)
            return
        # groups added during the run have no rate; strict=False, or a call of the Quantity for
        # each group, doubles the time
        if isinstance(lr_groups, dict):
            for name, rates in lr_groups.items():
                for group, rate in zip(optimizer[name].param_groups, rates):  # noqa: B905
                    group["lr"] = rate
        else:
            for group, rate in zip(optimizer.param_groups, lr_groups):  # noqa: B905
                group["lr"] = rate

    def _update(self, runner: Runner, is_new: bool = True, warm_up_at: int | None = None) -> None:
        """Set the rates."""
        if is_new:
            self._regular = self.get_regular_lr(runner)
        rates = self._regular if warm_up_at is None else self.get_warmup_lr(warm_up_at)
        self._set_lr(runner, rates)
