"""``FieldUpdaterHook``: a schedule for any entry of the parameter groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from operator import mul
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.priority import loggers_of
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.optimizers import number_in
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.hooks.updaters.lr import LARGEST_RATE, LrUpdaterHook
from lightning_hooks.hooks.updaters.policies import policy_of, value_of
from lightning_hooks.hooks.updaters.updater import Quantity, Updater
from lightning_hooks.utils.arguments import check_bool, shown
from lightning_hooks.utils.suggestions import suggest
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["FieldUpdaterHook"]

OWN_HOOKS = {"lr": "LrUpdaterHook", "momentum": "MomentumUpdaterHook"}
"""Fields with hooks of their own."""


def field_of(name: str) -> Quantity:
    """Return an entry of a group as a quantity; ``"betas.1"`` is the second of ``betas``."""
    is_share = name.partition(".")[0] in ("betas", "alpha", "dampening")
    return Quantity(
        name,
        name,
        partial(number_in, name=name),
        f"no {name}",
        highest=math.nextafter(1, 0) if is_share else LARGEST_RATE,
        valid_range="in [0, 1)" if is_share else f"between 0 and {LARGEST_RATE:.2g}",
        warm_up=mul,
    )


def _names_in(group: dict[str, Any]) -> Iterator[str]:
    """Yield the names of a group's numbers."""
    for key, entry in group.items():
        several = isinstance(entry, (tuple, list)) and key != "params"
        names = [f"{key}.{i}" for i in range(len(entry))] if several else [key]
        yield from (name for name in names if field_of(name).read(group) is not None)


@HOOKS.register_module()
class FieldUpdaterHook(Updater):
    """Sets any number of the parameter groups by a policy: weight decay, ``eps``, a beta.

    ``FieldUpdaterHook("weight_decay", policy="CosineAnnealing", end=0.4, by_epoch=False)``

    ================  ==========================================================
    writes            in every parameter group
    ================  ==========================================================
    the field         the policy's value, from the group's ``initial_<name>``
    initial_<name>    the first value, if missing
    ================  ==========================================================

    The log has the first group's value under the field's name.

    Args:
        name: The key in the groups; ``"betas.1"`` is the second of ``betas``.
        policy: A policy of learning rates, by its name in ``lr_config``.
        end: The value at the end, which the policies of rates call ``min_lr``.
        end_ratio: The same as a ratio of each group's first value.
        include_zeros: Also set groups whose first value is 0, as of biases without weight decay.
        by_epoch: Count in epochs, or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``.
        warmup_iters: Length of the warm-up; a float is a share of the run.
        warmup_ratio: The factor of ``schedules.warm_up`` at the start, in (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations.
        total: The policy's own length; afterwards the policy's last value stays.
        arguments: Further arguments of the policy.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for ``"lr"`` and ``"momentum"``, which have hooks of their own, a policy with a
            base or a warm-up of its own, and at the start of a run for a group without a number of
            the name, or a value below 0 or, of a beta, not below 1.

    Source: Ignite's ``ParamGroupScheduler`` and MMEngine's ``param_name`` set any entry, too.

    >>> from lightning_hooks.schedules import sample
    >>> hook = FieldUpdaterHook("weight_decay", policy="LinearAnnealing", end=0.5)
    >>> sample(hook, max_epochs=4, iters_per_epoch=1, fields={"weight_decay": 0.25})
    [0.25, 0.3125, 0.375, 0.4375]
    """

    priority = "HIGH"
    _is_logged = False

    def __init__(
        self,
        name: str,
        policy: str,
        end: float | None = None,
        end_ratio: float | None = None,
        include_zeros: bool = False,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int | float = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
        by_step: bool = False,
        total: int | float | None = None,
        **arguments: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a key of the parameter groups, got {shown(name)}")
        if name in OWN_HOOKS:
            raise ValueError(f"{name} has hooks of its own: write {policy}{OWN_HOOKS[name]}(...)")
        item = name.partition(".")[2]
        if "." in name and not item.isdigit():
            raise ValueError(
                f'name must be a key, or a key and a place as "betas.1", got {shown(name)}'
            )
        super().__init__(
            by_epoch, warmup, warmup_iters, warmup_ratio, warmup_by_epoch, by_step, total
        )
        check_bool(include_zeros=include_zeros)
        self._quantity = field_of(name)
        self.name, self.include_zeros = name, include_zeros
        ends = {"end": end, "end_ratio": end_ratio}
        arguments |= {key: value for key, value in ends.items() if value is not None}
        where = f"the policy of {name}"
        self.policy = policy_of(policy, arguments, LrUpdaterHook, self.by_epoch, where)
        self._value_of_policy = value_of(self.policy)
        self._needs_length = self.policy._needs_length
        self._is_constant = self.policy._is_constant

    def _value(self, base: Any, position: int, total: Any) -> float:
        """Return the policy's value; a group with 0 stays at 0."""
        if base == 0 and not self.include_zeros:
            return 0.0
        return self._value_of_policy(base, position, total)

    def _why_still(self, runner: Runner) -> str:
        """Return that groups with 0 stay at 0, if all groups do."""
        bases = param_groups.with_groups(runner.optimizer, self._base)
        if self.include_zeros or any(base != 0 for _, _, base in bases):
            return ""
        return ": a group whose first value is 0 stays at 0, unless include_zeros=True"

    def _is_predictable(self) -> bool:
        """Return True: the policy is a function of base, position and total."""
        return True

    def _check(self, total: int) -> None:
        """Raise ValueError where the policy does."""
        self.policy._check(total)

    def _update(self, runner: Runner, is_new: bool = True, warm_up_at: int | None = None) -> None:
        """Set the field."""
        if is_new:
            self._regular = self._policy_values(runner)
        values = self._regular if warm_up_at is None else self._warm_values(warm_up_at)
        key, _, item = self.name.partition(".")
        for _, group, number in param_groups.with_groups(runner.optimizer, values):
            if item:
                entries = [*group[key]]
                param_groups.fill(entries, int(item), number)
                group[key] = type(group[key])(entries)
            else:
                param_groups.fill(group, key, number)

    def _missing_in(self, group: dict[str, Any]) -> str:
        """Return what a group lacks, with the closest name."""
        names = [name for name in _names_in(group) if not name.startswith("initial_")]
        return f"no number {self.name}; {suggest(self.name, names)}"

    def before_run(self, runner: Runner) -> None:
        """Read the bases, and check the schedule."""
        super().before_run(runner)
        is_run = self._joined_fit is not None  # not a schedule drawn without a run
        self._is_logged = is_run and bool(loggers_of(runner.hooks))

    def before_train_iter(self, runner: Runner) -> None:
        """Set the iteration's values, and log the first group's."""
        super().before_train_iter(runner)
        if self._is_logged:
            _, optimizer = param_groups.optimizers_of(runner.optimizer)[0]
            runner.log_buffer.update({self.name: self._quantity.read(optimizer.param_groups[0])})

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn of another hook for the same field."""
        hooks = [
            other for other in Driver.of(trainer).runner.hooks if isinstance(other, type(self))
        ]
        same = [other for other in hooks if other.name == self.name]
        if len(same) > 1 and same[-1] is self:
            rank_zero_warn(
                f"{len(same)} FieldUpdaterHooks set {self.name}: each step takes the value that "
                "was set last; leave out all but one"
            )
