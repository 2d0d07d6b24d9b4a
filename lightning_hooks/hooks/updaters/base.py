"""``Updater``: the base of the hooks that set a value of every parameter group by a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.hooks.updaters.conflicts import warn_of_conflicts
from lightning_hooks.hooks.updaters.counting import CountedHook
from lightning_hooks.hooks.updaters.param_groups import (
    DistinctBases,
    Values,
    adopt_new_groups,
    map_values,
    optimizers_of,
)
from lightning_hooks.hooks.updaters.preflight import preflight
from lightning_hooks.schedules import check_warm_up, warm_up
from lightning_hooks.utils.arguments import check_bool

__all__ = ["Updater", "alias"]


def alias(name: str) -> Any:
    """Return a property that reads and writes the attribute of this name."""
    return property(attrgetter(name), lambda self, value: setattr(self, name, value))


class Updater(CountedHook):
    """The base of the hooks for learning rates and for momenta.

    A value is computed from the group's base, the counters and the length of the run. Nothing else
    is stored, so it is right after any resume, and when ``max_epochs`` changes. A group that is
    added during the run is set from the next epoch on, as it would be from the start.

    With ``by_step`` an iteration is an optimizer step, wherever iterations are counted: under
    ``Trainer(accumulate_grad_batches=4)``, or with ``GradientCumulativeOptimizerHook``, four
    batches. ``runner.iter`` and ``runner.max_iters``, as a policy sees them, are then the steps
    made and the steps of the run
    (:func:`~lightning_hooks.engine.runner.optimizer_steps.steps_of_run`).

    Args:
        by_epoch: Count in epochs (the value changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``.
        warmup_iters: Length of the warm-up.
        warmup_ratio: The factor of ``schedules.warm_up`` at its start, in
            (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations: in the policy with
            ``by_epoch=False``, and in the warm-up. Steps that the Trainer's gradient scaler skips
            are left out, except for optimizers with ``fused=True``, which do not report them.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where no iterations are counted.
    """

    reads_step = False

    quantity = "value"
    """The name of what the hook sets."""

    symbol = "value"
    """The same in mmcv's names of arguments, as in ``min_lr``."""

    least_minimum: float = -math.inf
    """The lowest minimum that a policy accepts."""

    valid_range = ""
    """The range of :meth:`is_valid`, in words."""

    needs_length = False
    """Whether the policy depends on the length of the run."""

    # for subclasses that do not call super().__init__()
    warmup: str | None = None
    warmup_iters: int | None = 0
    warmup_ratio: float = 0.1
    warmup_by_epoch: bool = False
    warmup_epochs: int | None = None
    _distinct: DistinctBases | None = None

    base: Values = ()
    """The number of each group from which its values are computed."""

    regular: Values = ()
    """The current values without warm-up."""

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
        by_step: bool = False,
    ) -> None:
        super().__init__()
        check_bool(by_epoch=by_epoch, warmup_by_epoch=warmup_by_epoch, by_step=by_step)
        check_warm_up(warmup, warmup_iters, warmup_ratio)
        if by_step and by_epoch and warmup is None:
            raise ValueError(
                "by_step=True counts optimizer steps in place of iterations, but by_epoch=True "
                "without a warmup counts no iterations: give by_epoch=False, or a warmup"
            )
        self.by_epoch = by_epoch
        self.by_step = by_step
        self.warmup = warmup
        self.warmup_ratio = warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None
        self.warmup_iters = None if warmup_by_epoch else warmup_iters

    # -- defined by a policy -----------------------------------------------------------------

    def value(self, base: Any, position: int, total: Any) -> float:
        """Return the policy's value for a group of this base.

        ``position`` and ``total`` count epochs or iterations; ``total`` may be None unless the
        policy ``needs_length``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no schedule")

    @property
    def takes_arrays(self) -> bool:
        """Whether ``value`` also takes an array of bases; a subclass's own does not."""
        return getattr(self.value, "elementwise", False)

    def check(self, total: int) -> Iterator[str]:
        """Yield warnings for a run of this length; raise ValueError if it would fail."""
        yield from ()

    # -- defined by a quantity ---------------------------------------------------------------

    def bases_of(self, name: str, optimizer: Any) -> Sequence[Any]:
        """Return the base of each of an optimizer's groups."""
        raise NotImplementedError

    def regular_values(self, runner: Any) -> Values:
        """Return the values without warm-up."""
        raise NotImplementedError

    def warm_values(self, now: int) -> Values:
        """Return the values with warm-up."""
        raise NotImplementedError

    def with_warmup(self, value: float, factor: float) -> float:
        """Apply a warm-up's factor to a value."""
        raise NotImplementedError

    def set_values(self, runner: Any, values: Values) -> None:
        """Write the values into the groups."""
        raise NotImplementedError

    def is_valid(self, value: Any) -> bool:
        """Whether a group may have this value."""
        raise NotImplementedError

    def is_predictable(self) -> bool:
        """Whether :meth:`value` gives all values before the run: nothing else computes them."""
        return type(self).value is not Updater.value

    def conflicts_with(self, scheduler: Any) -> bool:
        """Whether a scheduler of Lightning's sets the same quantity."""
        return True

    # -- the points --------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Read the bases, and check the schedule."""
        self.start_counting(runner)
        runner = self.as_counted(runner)
        optimizer = runner.optimizer
        if not optimizer:
            raise ValueError(f"{type(self).__name__} needs an optimizer, and there is none")
        bases: dict[str, Sequence[Any]] = {
            name: self.bases_of(name, one) for name, one in optimizers_of(optimizer)
        }
        self.base = bases if isinstance(optimizer, dict) else next(iter(bases.values()))
        if self.warmup_epochs is not None:
            self.warmup_iters = None  # the loader may be another than in the fit before
        preflight(self, runner)

    def before_train_epoch(self, runner: Any) -> None:
        """Set the epoch's values, if they are counted in epochs."""
        runner = self.as_counted(runner)
        self.warmup_length(runner)  # sets warmup_iters, which a subclass's get_lr may read
        if self.by_epoch:
            self.regular = self.regular_values(runner)
            self.set_values(runner, self.regular)

    def before_train_iter(self, runner: Any) -> None:
        """Set the iteration's values, if they are counted in iterations or warming up."""
        runner = self.as_counted(runner)
        length, now = self.warmup_length(runner), runner.iter
        if not self.by_epoch:
            self.regular = self.regular_values(runner)
        if now < length:
            self.set_values(runner, self.warm_values(now))
        # the first step after the warm-up may be later than its length
        elif not self.by_epoch or (self.warmup is not None and (now == length or self.by_step)):
            self.set_values(runner, self.regular)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn of what else sets the same values, when every hook has its bases."""
        warn_of_conflicts(self, trainer)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set the values of parameter groups that were added in the epoch before, too."""
        runner = Driver.of(trainer).runner
        if runner.adopts_new_groups and adopt_new_groups(self, runner) and self.by_epoch:
            runner = self.as_counted(runner)
            self.regular = self.regular_values(runner)
            self.set_values(runner, self.regular)

    # -- the warm-up -------------------------------------------------------------------------

    def warmup_length(self, runner: Any) -> int:
        """Return the iterations of the warm-up, 0 without one."""
        if self.warmup is None:
            return 0
        if self.warmup_iters is None:
            self.warmup_iters = self.iters_of(runner, self.warmup_epochs or 0)
        return self.warmup_iters

    def warmup_factor(self, now: int) -> float:
        """Return the factor of the warm-up at an iteration."""
        assert self.warmup_iters is not None
        return warm_up(now, self.warmup_iters, kind=self.warmup, ratio=self.warmup_ratio)

    # -- helpers for a quantity --------------------------------------------------------------

    def range_error(self, where: str, value: Any, when: str) -> ValueError:
        """Return the error for an invalid value of a group."""
        return ValueError(
            f"{type(self).__name__}: the {self.quantity} of {where} would be {value} at {when}, "
            f"it must be {self.valid_range}"
        )

    def _progress(self, runner: Any) -> tuple[int, Any]:
        """Return the position and the total that ``value`` takes."""
        position = runner.epoch if self.by_epoch else runner.iter
        return position, self.required_length(runner) if self.needs_length else None

    def _regular_values(self, runner: Any, get: Callable[..., Any], default: Any) -> Values:
        """Return ``get(runner, base)`` of every group; faster where ``get`` is not overridden."""
        if getattr(get, "__func__", None) is not default:
            return map_values(partial(get, runner), self.base)
        now = self._progress(runner)
        if isinstance(self.base, dict):
            return {name: self._group_values(bases, *now) for name, bases in self.base.items()}
        return self._group_values(self.base, *now)

    def _group_values(self, bases: Sequence[Any], position: int, total: Any) -> list[float]:
        """Return the policy's value for each group of one optimizer."""
        if self._distinct is None or not self._distinct.equal(bases):
            self._distinct = DistinctBases(bases)
        return self._distinct.values(self.value, position, total, as_array=self.takes_arrays)

    def _warm_values(self, now: int, values: Values) -> Values:
        factor = self.warmup_factor(now)
        return map_values(lambda value: self.with_warmup(value, factor), values)
