"""``Updater``: a hook that sets a quantity of every parameter group by a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters import checks, param_groups
from lightning_hooks.hooks.updaters.param_groups import Values
from lightning_hooks.schedules import check_length, check_warm_up, length_of, warm_up
from lightning_hooks.utils.arguments import check_bool, shown
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["PolicyRunner", "Quantity", "Updater", "check_share"]

EPOCHS = "max_epochs; with max_steps, by_epoch=False"
ITERATIONS = (
    "max_epochs and a loader with a length, or max_steps with automatic optimization; "
    "limit_train_batches=... gives a loader a length, by_epoch=True needs max_epochs alone"
)
STEPS = "max_steps, or with automatic optimization max_epochs and a loader with a length"


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number of a parameter group: how to read, check and warm up the number.

    Args:
        name: The name, for messages.
        symbol: The name in mmcv's arguments, as in ``min_lr``.
        read: Returns the number of a group, None without one.
        missing: What a group without the number lacks, for messages.
        highest: The highest valid number; the lowest is 0.
        valid_range: The valid numbers in words.
        warm_up: Applies a warm-up's factor to a number.
    """

    name: str
    symbol: str
    read: Callable[[dict[str, Any]], Any]
    missing: str
    highest: float
    valid_range: str
    warm_up: Callable[[float, Any], Any]


class Updater(Hook):
    """The base of the hooks for learning rates and for momenta.

    A value is computed from the group's base, the counters and the length of the run. Nothing else
    is stored, so the value is right after any resume, and when ``max_epochs`` changes. A group
    added during the run is set from the next epoch on, as from the start.

    With ``by_step`` an iteration is an optimizer step: under
    ``Trainer(accumulate_grad_batches=4)``, or with ``GradientCumulativeOptimizerHook``, four
    batches. A policy then sees the steps made as ``runner.iter`` and the steps of the run as
    ``runner.max_iters`` (``runner.max_optimizer_steps``). The state of the hook is the number of
    steps skipped by the Trainer's gradient scaler.

    Args:
        by_epoch: Count in epochs (the value changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``.
        warmup_iters: Length of the warm-up; a float is a share of the run.
        warmup_ratio: The factor of ``schedules.warm_up`` at the start, in (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations: in the policy with
            ``by_epoch=False``, and in the warm-up. Steps skipped by the Trainer's gradient scaler
            do not count, except of optimizers with ``fused=True``, which do not report a skip.
        total: The policy's own length in epochs or iterations, or a float as a share of the run;
            after it the policy's last value stays. None for the length of the run.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where no iterations are counted.
    """

    _reads_step = False

    _quantity: Quantity
    """The number that the hook sets."""

    _needs_length: bool = False
    """Whether :meth:`_value` depends on the length of the run."""

    _is_constant = False
    """Whether the policy never changes a value."""

    _own_base: Any = None
    """The base of a policy that uses no base of the groups, if all groups have the same."""

    _counts_iterations = False
    """Whether the policy refuses to count epochs."""

    # for subclasses that do not call super().__init__()
    by_epoch: bool = True
    _by_step: bool = False
    warmup: str | None = None
    warmup_iters: int | None = 0
    warmup_ratio: float = 0.1
    _warmup_by_epoch: bool = False
    _warmup_epochs: int | None = None
    _warmup_share: float | None = None
    _own_total: float | None = None
    _minimum: Any
    _minimum_ratio: Any
    _applied: AppliedSteps | None = None
    _skipped_before = 0

    _base: Values = ()
    """The number of each group from which its values are computed."""

    _base_arguments = ""
    """The arguments from which the bases come; empty if they are the groups' own."""

    _configured: Mapping[Any, list[float | None]] = MappingProxyType({})
    """The bases of each optimizer before a resume; empty in a new run, and once reported."""

    _regular: Values = ()
    """The current values without warm-up."""

    _fills_tensors = False
    """Whether a group of the optimizers holds its value in a tensor."""

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int | float = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
        by_step: bool = False,
        total: int | float | None = None,
    ) -> None:
        super().__init__()
        check_bool(by_epoch=by_epoch, warmup_by_epoch=warmup_by_epoch, by_step=by_step)
        check_warm_up(warmup, warmup_iters, warmup_ratio)
        if total is not None:
            check_length("total", total)
        if by_epoch and self._counts_iterations:
            raise ValueError(f"{type(self).__name__} counts iterations: by_epoch must be False")
        if by_step and by_epoch and warmup is None:
            raise ValueError(
                "by_step=True counts optimizer steps in place of iterations, but by_epoch=True "
                "without a warmup counts no iterations: give by_epoch=False, or a warmup"
            )
        self.by_epoch = by_epoch
        self._by_step = by_step
        self.warmup = warmup
        self.warmup_ratio = warmup_ratio
        self._warmup_by_epoch = warmup_by_epoch
        self._warmup_epochs = self._warmup_share = self.warmup_iters = None
        if isinstance(warmup_iters, float):
            self._warmup_share = warmup_iters
        elif warmup_by_epoch:
            self._warmup_epochs = warmup_iters
        else:
            self.warmup_iters = warmup_iters
        self._own_total = total

    # -- the policy --------------------------------------------------------------------------

    def _value(self, base: Any, position: int, total: Any) -> float:
        """Return the policy's value for a group of this base.

        ``position`` and ``total`` count epochs or iterations; ``total`` may be None unless the
        policy ``_needs_length``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no schedule")

    @property
    def _minimum_arguments(self) -> dict[str, Any]:
        """The minimum as the arguments of a schedule."""
        return {"minimum": self._minimum, "ratio": self._minimum_ratio}

    def _check(self, total: int) -> None:
        """Raise ValueError for a run of a length where the policy would fail."""

    def _why_still(self, runner: Runner) -> str:
        """Return why the quantity never moves, for the warning; empty if only the policy knows."""
        return ""

    def _is_predictable(self) -> bool:
        """Whether :meth:`_value` alone computes the values, so they are known before the run."""
        symbol = self._quantity.symbol
        changed = checks.overrides(self, f"get_{symbol}", f"_set_{symbol}")
        return not changed and type(self)._value is not Updater._value

    # -- the quantity ------------------------------------------------------------------------

    @property
    def _sets(self) -> str:  # type: ignore[override]
        return self._quantity.symbol

    def _bases_of(self, name: str, optimizer: Any) -> Sequence[Any]:
        """Return the ``initial_lr`` (``initial_momentum``) of each of an optimizer's groups."""
        key = f"initial_{self._quantity.symbol}"
        self._keep_first_values(optimizer)
        return [param_groups.as_number(group[key]) for group in optimizer.param_groups]

    def _first_values(self, optimizer: Any) -> list[float | None]:
        """Return each group's ``initial_...`` value, else the present one, None without either."""
        key = f"initial_{self._quantity.symbol}"
        numbers = [group.get(key, self._quantity.read(group)) for group in optimizer.param_groups]
        return [None if number is None else param_groups.as_number(number) for number in numbers]

    def _keep_first_values(self, optimizer: Any) -> None:
        """Write the present values under the ``initial_...`` key of groups without the key."""
        for group, number in zip(
            optimizer.param_groups, self._first_values(optimizer), strict=True
        ):
            if number is not None:
                group.setdefault(f"initial_{self._quantity.symbol}", number)

    def _checked_bases(self, name: str, optimizer: Any) -> Sequence[Any]:
        """Return :meth:`_bases_of` an optimizer whose groups have the quantity."""
        quantity = self._quantity
        for i, group in enumerate(optimizer.param_groups):
            number = quantity.read(group)
            if number is None:
                where = param_groups.describe_groups(name, optimizer, i)
                raise ValueError(
                    f"{type(self).__name__} needs an optimizer with {quantity.name}: {where} has "
                    f"{self._missing_in(group)}"
                )
            if isinstance(number, torch.Tensor):
                self._fills_tensors = True
                param_groups.own_tensors(optimizer)
        return self._bases_of(name, optimizer)

    def _missing_in(self, group: dict[str, Any]) -> str:
        """Return what a group without the quantity lacks, for messages."""
        return self._quantity.missing

    def _is_valid(self, value: Any) -> bool:
        """Whether a group may have this value."""
        return isinstance(value, (int, float)) and 0 <= value <= self._quantity.highest

    def _update(self, runner: Runner, is_new: bool = True, warm_up_at: int | None = None) -> None:
        """Set the groups' values.

        Args:
            runner: The runner, counting as the hook counts.
            is_new: Compute the regular values first; otherwise the last ones are set.
            warm_up_at: The iteration of the warm-up; None after the warm-up.
        """
        raise NotImplementedError

    # -- the points --------------------------------------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the bases before a resume; write the bases to the groups if shards are loaded.

        From a directory of shards, torch restores only the keys present in the groups.
        """
        super().on_fit_start(trainer, pl_module)
        if trainer.ckpt_path is not None:
            self._configured = {each: self._first_values(each) for each in trainer.optimizers}
        if trainer.strategy.restore_checkpoint_after_setup:
            for optimizer in trainer.optimizers:
                self._keep_first_values(optimizer)

    def before_run(self, runner: Runner) -> None:
        """Read the bases, and check the schedule."""
        self._fills_tensors = False
        if self._by_step:
            if runner.trainer.global_step == 0:
                self._skipped_before = 0
            self._applied = AppliedSteps(runner.trainer, self._joined_fit)
            if self._joined_fit is not None:  # None for a schedule drawn without a run
                self._joined_fit.callback(self._keep_count)
        runner = self._as_counted(runner)
        optimizer = runner.optimizer
        if not optimizer:
            raise ValueError(f"{type(self).__name__} needs an optimizer, and there is none")
        bases: dict[str, Sequence[Any]] = {
            name: self._checked_bases(name, member)
            for name, member in param_groups.optimizers_of(optimizer)
        }
        self._base = bases if isinstance(optimizer, dict) else next(iter(bases.values()))
        if not self._base_arguments:
            checks.report_restored_bases(self, runner)
        self._configured = {}
        self._forget_warmup_length()
        checks.check_schedule(self, runner)

    def before_train_epoch(self, runner: Runner) -> None:
        """Set the epoch's values, if the policy counts epochs."""
        runner = self._as_counted(runner)
        self._forget_warmup_length()
        self._warmup_length(runner)  # sets warmup_iters, which a subclass's get_lr may read
        if self.by_epoch:
            self._update(runner)

    def before_train_iter(self, runner: Runner) -> None:
        """Set the iteration's values, if the policy counts iterations or warms up."""
        if self._by_step:
            runner = self._as_counted(runner)
        if self.warmup is None:
            if not self.by_epoch:
                self._update(runner)
            return
        length, now = self.warmup_iters or self._warmup_length(runner), runner.iter
        if now < length:
            self._update(runner, not self.by_epoch, now)
        # the first step after the warm-up may be later than its length
        elif not self.by_epoch or now == length or self._by_step:
            self._update(runner, not self.by_epoch)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn of rivals, once every hook has its bases, and of early readers of the rates."""
        runner = Driver.of(trainer).runner
        checks.warn_of_rivals(self, runner)
        if self._quantity.symbol == "lr":
            checks.warn_of_early_monitors(self, runner)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set the values of parameter groups added in the last epoch, too."""
        runner = Driver.of(trainer).runner
        if self._adopt_new_groups(runner) and self.by_epoch:
            self._update(self._as_counted(runner))

    def _adopt_new_groups(self, runner: Runner) -> bool:
        """Read the bases of groups added in the last epoch; return whether there are any."""
        has_new = False
        for name, optimizer in param_groups.optimizers_of(runner.optimizer):
            known = self._base.get(name) if isinstance(self._base, dict) else self._base
            if known is None or not runner.added_groups(optimizer, len(known)):
                continue  # with fewer groups the first bases count, as in mmcv
            try:
                bases = self._checked_bases(name, optimizer)
            except ValueError as error:
                what = f"the {self._quantity.name} of added groups as it is"
                rank_zero_warn(f"{class_name(self)} leaves {what}: {error}")
                continue
            for group in range(len(known), len(bases)):
                added = optimizer.param_groups[group]["params"]
                runner.logger.info(
                    "%s also sets the %s of %s from now on, with the base %s: %s",
                    class_name(self),
                    self._quantity.name,
                    param_groups.describe_groups(name, optimizer, group),
                    bases[group],
                    listed(param_groups.parameter_names(runner.module, added)),
                )
            bases = [*known, *bases[len(known) :]]
            self._base = {**self._base, name: bases} if isinstance(self._base, dict) else bases
            has_new = True
        return has_new

    def _keep_count(self) -> None:
        self._skipped_before, self._applied = self._skipped, None

    # -- counters ----------------------------------------------------------------------------

    def _as_counted(self, runner: Runner) -> Runner:
        """Return the runner, with optimizer steps as iterations if ``by_step``."""
        if not self._by_step or isinstance(runner, _InSteps):
            return runner
        return cast("Runner", _InSteps(runner, self._skipped))  # has all attributes of the runner

    @property
    def _iteration_unit(self) -> str:
        """The unit within an epoch, for messages."""
        return "optimizer step" if self._by_step else "iteration"

    def _iters_until(self, runner: Runner, epochs: int) -> int:
        """Return the iterations (steps, with ``by_step``) done after the run's first epochs.

        Raises:
            ValueError: if the loader has no length.
        """
        if self._by_step:
            return runner.optimizer_steps_until(epochs)
        if runner.trainer.num_training_batches == float("inf"):
            raise ValueError(
                f"{type(self).__name__} counts epochs as iterations: the training loader needs a "
                "length, or Trainer(limit_train_batches=...) has to give it one; without, count "
                "iterations (by_epoch=False, warmup_by_epoch=False)"
            )
        return runner.iters_until(epochs)

    def _run_length(self, runner: Runner) -> int | None:
        """Return the length of the run in the policy's unit, None if unknown."""
        return self._progress(runner)[1]

    def _required_length(self, runner: Runner) -> int:
        """Return :meth:`_run_length`.

        Raises:
            ValueError: if the length is unknown.
        """
        total = self._run_length(runner)
        if total is None:
            limit = EPOCHS if self.by_epoch else STEPS if self._by_step else ITERATIONS
            raise ValueError(f"{type(self).__name__} needs the length of the run: give {limit}")
        return total

    def _progress(self, runner: Runner) -> tuple[int, int | None]:
        """Return the position in the run and the length of the run, in the policy's unit.

        A run that is longer than was known stays at the end of a policy that needs the length.
        """
        if self.by_epoch:
            position, total = runner.epoch, runner.max_epochs
        else:
            position, total = runner.iter, runner.max_iters
        if isinstance(runner, PolicyRunner):
            return position, total
        if self._needs_length and total is not None and position > total:
            unit = "epoch" if self.by_epoch else self._iteration_unit
            runner.warn_once(
                f"{type(self).__name__} stays where it ends: the run goes on after its {total} "
                f"{unit}s. By iteration, max_steps is taken for a step of each optimizer in every "
                "batch; where the module makes fewer, by_step=True counts steps"
            )
            position = total
        if self._own_total is None:
            return position, total
        return self._own_window(position, total)

    def _own_window(self, position: int, total: int | None) -> tuple[int, int | None]:
        """Return the position in the policy's own length, and this length, with ``total=...``."""
        if self._own_total is None or (total is None and isinstance(self._own_total, float)):
            return position, total
        own = length_of(self._own_total, total)
        return min(position, own), own

    # -- the warm-up -------------------------------------------------------------------------

    def _warmup_length(self, runner: Runner) -> int:
        """Return the iterations of the warm-up, 0 without one."""
        if self.warmup is None:
            return 0
        if self.warmup_iters is None and self._warmup_share is not None:
            if runner.max_iters is None:
                limit = STEPS if self._by_step else ITERATIONS
                raise ValueError(
                    f"{type(self).__name__}: warmup_iters={self._warmup_share} is a share of the "
                    f"run, whose length is unknown: give {limit}"
                )
            self.warmup_iters = length_of(self._warmup_share, runner.max_iters)
        elif self.warmup_iters is None:
            self.warmup_iters = self._iters_until(runner, self._warmup_epochs or 0)
        return self.warmup_iters

    def _forget_warmup_length(self) -> None:
        """Have a length in epochs, or as a share of the run, computed anew."""
        if self._warmup_epochs is not None or self._warmup_share is not None:
            self.warmup_iters = None  # the loader may have another length

    def _warmup_factor(self, now: int) -> float:
        """Return the factor of the warm-up at an iteration."""
        return warm_up(now, self.warmup_iters or 0, kind=self.warmup, ratio=self.warmup_ratio)

    def _warm_values(self, cur_iters: int) -> Values:
        """Return the values of all groups, with warm-up."""
        factor, scale, regular = (
            self._warmup_factor(cur_iters),
            self._quantity.warm_up,
            self._regular,
        )
        # a function called for each group would take half as long again
        if isinstance(regular, dict):
            return {
                name: [scale(factor, value) for value in group] for name, group in regular.items()
            }
        return [scale(factor, value) for value in regular]

    # -- helpers for a quantity --------------------------------------------------------------

    def _range_error(self, where: str, value: Any, when: str) -> ValueError:
        """Return the error for an invalid value of a group."""
        warm_up = "" if self.warmup is None else f" (with warmup_ratio={self.warmup_ratio})"
        return ValueError(
            f"{type(self).__name__}: the {self._quantity.name} of {where} would be {value} at "
            f"{when}{warm_up}, it must be {self._quantity.valid_range}"
        )

    def _regular_values(self, runner: Runner, get: Callable[..., Any], stock: Any) -> Values:
        """Return ``get(runner, base)`` of every group; faster where ``get`` is not overridden."""
        if getattr(get, "__func__", None) is stock:
            return self._policy_values(runner)
        if self._own_total is not None and not self._is_predictable():
            runner = cast("Runner", PolicyRunner(self.by_epoch, *self._progress(runner)))
        return param_groups.map_values(partial(get, runner), self._base)

    def _policy_values(self, runner: Runner) -> Values:
        """Return the policy's value of every group."""
        value, (position, total) = self._value, self._progress(runner)
        if isinstance(self._base, dict):
            return {
                k: [value(b, position, total) for b in bases] for k, bases in self._base.items()
            }
        return [value(base, position, total) for base in self._base]

    # -- the state: skipped steps ------------------------------------------------------------

    @property
    def _skipped(self) -> int:
        return self._skipped_before + (0 if self._applied is None else self._applied.skipped)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of skipped steps, if any."""
        return {"skipped_steps": self._skipped} if self._skipped else {}

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Reset the number of skipped steps."""
        self._skipped_before = 0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the number of skipped steps."""
        self._skipped_before = state_dict.get("skipped_steps", 0)


def check_share(name: str, value: object, *, below_one: bool = False) -> float:
    """Check a share of the run and return it.

    Args:
        name: The argument's name, for the error.
        value: The number.
        below_one: Refuse 1.

    Raises:
        ValueError: for anything else.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1 or (below_one and value == 1):  # type: ignore[operator]
        allowed = "in [0, 1)" if below_one else "between 0 and 1"
        raise ValueError(f"{name} must be a number {allowed}, got {shown(value)}")
    return value  # type: ignore[return-value]


class _InSteps:
    """A view of a runner with optimizer steps as iterations; other attributes are the runner's.

    >>> from types import SimpleNamespace
    >>> runner = SimpleNamespace(iter=9, epoch=1, optimizer_steps=3, max_optimizer_steps=4)
    >>> seen = _InSteps(runner)
    >>> seen.iter, seen.max_iters, seen.epoch
    (3, 4, 1)
    """

    _runner: Runner
    _skipped: int

    def __init__(self, runner: Runner, skipped: int = 0) -> None:
        object.__setattr__(self, "_runner", runner)
        object.__setattr__(self, "_skipped", skipped)

    @property
    def iter(self) -> int:
        """Optimizer steps made before the current batch's step."""
        return self._runner.optimizer_steps - self._skipped

    @property
    def max_iters(self) -> int | None:
        """Optimizer steps to make, None if unknown."""
        return self._runner.max_optimizer_steps

    _iter, _max_iters = iter, max_iters

    def __getattr__(self, name: str) -> Any:
        if name == "_runner":  # a copy in the making has none
            raise AttributeError(name)
        return getattr(self._runner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._runner, name, value)


class PolicyRunner:
    """What ``get_lr(runner, base_lr)`` sees of a policy's window: the position and the length.

    Args:
        by_epoch: Whether epochs are counted, or iterations.
        position: Epochs or iterations done.
        total: Epochs or iterations to do.

    >>> PolicyRunner(False, 3, 8)._max_iters
    8
    """

    def __init__(self, by_epoch: bool, position: int, total: Any) -> None:
        if by_epoch:
            self.epoch, self.max_epochs = position, total
        else:
            self.iter, self.max_iters = position, total

    def __getattr__(self, name: str) -> Any:
        meant = name.removeprefix("_")
        if name != meant and meant in vars(self):  # mmcv's _iter, _max_iters, ...
            return vars(self)[meant]
        raise AttributeError(
            f"there is no runner.{name} for a policy in a phase, of a field, or with total=...: it "
            f"sees {' and '.join(sorted(vars(self)))}"
        )
