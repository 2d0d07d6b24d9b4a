"""``Updater``: sets a number of every parameter group by a schedule, with a warm-up on top."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import lightning as L

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps, InSteps
from lightning_hooks.hooks.updaters.param_groups import (
    Bases,
    Values,
    optimizers_of,
    place,
    with_groups,
)
from lightning_hooks.hooks.updaters.preflight import look_ahead
from lightning_hooks.schedules import check_warm_up, warm_up
from lightning_hooks.utils.arguments import check_bool

__all__ = ["Updater"]


ITERATIONS = "max_epochs and a loader with a length, or max_steps with automatic optimization"
STEPS = "max_steps, or with automatic optimization max_epochs and a loader with a length"


class Updater(Hook):
    """What the hooks for learning rates and for momenta share.

    A value is computed from the group's base, the counters and the length of the run. Nothing else
    is kept, so it is right after any resume, and when ``max_epochs`` changes.

    With ``by_step`` an iteration is an optimizer step, wherever iterations are counted: under
    ``Trainer(accumulate_grad_batches=4)``, or with ``GradientCumulativeOptimizerHook``, four
    batches. ``runner.iter`` and ``runner.max_iters``, as a policy sees them, are then the steps
    made and the steps of the run
    (:func:`~lightning_hooks.engine.runner.optimizer_steps.steps_of_run`).

    Args:
        by_epoch: Count in epochs (the value changes before each), or in iterations.
        warmup: None, ``"constant"``, ``"linear"`` or ``"exp"``.
        warmup_iters: How long it takes.
        warmup_ratio: The factor of :func:`~lightning_hooks.schedules.warm_up` at its start, in
            (0, 1].
        warmup_by_epoch: Count ``warmup_iters`` in epochs.
        by_step: Count optimizer steps in place of iterations: in the policy with
            ``by_epoch=False``, and in the warm-up. Steps that the Trainer's gradient scaler skips
            are left out, but for optimizers with ``fused=True``, which do not tell.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an unknown warm-up, a length below 1, a ratio outside (0, 1], or
            ``by_step`` where no iterations are counted.
    """

    reads_step = False

    quantity = "value"
    """What it sets, in words."""

    needs_length = False
    """Whether the policy depends on the length of the run."""

    at_once: Any = False
    """Whether ``value`` takes an array of bases too; each class says so for itself alone."""

    # for subclasses that do not call super().__init__()
    by_epoch: bool = True
    warmup: str | None = None
    warmup_iters: int | None = 0
    warmup_ratio: float = 0.1
    warmup_by_epoch: bool = False
    warmup_epochs: int | None = None
    by_step: bool = False
    _applied: AppliedSteps | None = None
    _skipped_before = 0
    _known: Bases | None = None

    base: Values = ()
    """The number of each group from which its values are computed."""

    regular: Values = ()
    """The values without warm-up, as they are now."""

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
                "by_step=True counts optimizer steps in place of iterations, and nothing counts "
                "these: give by_epoch=False, or a warmup"
            )
        self.by_epoch = by_epoch
        self.by_step = by_step
        self.warmup = warmup
        self.warmup_ratio = warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None
        self.warmup_iters = None if warmup_by_epoch else warmup_iters

    # -- what policies say -------------------------------------------------------------------

    def value(self, base: Any, position: int, total: Any) -> float:
        """Return the policy's value for a group of this base.

        ``position`` and ``total`` count epochs or iterations; ``total`` is not to be relied on
        unless the policy ``needs_length``, without which it may be None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no schedule")

    def check(self, total: int) -> Iterator[str]:
        """Yield what is odd about a run of this length, or raise ValueError if it would fail."""
        yield from ()

    # -- what a quantity says ----------------------------------------------------------------

    def bases_of(self, name: str, optimizer: Any) -> Sequence[Any]:
        """Return the base of each of an optimizer's groups."""
        raise NotImplementedError

    def regular_values(self, runner: Any) -> Values:
        """Return the values without warm-up."""
        raise NotImplementedError

    def warm_values(self, now: int) -> Values:
        """Return the values with warm-up."""
        raise NotImplementedError

    def warmed(self, value: float, factor: float) -> float:
        """Return a value with a warm-up's factor."""
        raise NotImplementedError

    def out_of_range(self, where: str, value: Any, when: str) -> str:
        """Say what is wrong with a value of a group."""
        raise NotImplementedError

    def set_values(self, runner: Any, values: Values) -> None:
        """Write the values into the groups."""
        raise NotImplementedError

    def allows(self, value: Any) -> bool:
        """Whether a group may have this value."""
        return True

    def judges(self) -> bool:
        """Whether what will be set is known beforehand: what :meth:`value` says."""
        return type(self).value is not Updater.value

    def fights_with(self, scheduler: Any) -> bool:
        """Whether a scheduler of Lightning's sets the same thing."""
        return True

    # -- the points --------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Take the bases, and look ahead."""
        if self.by_step:
            self._skipped_before *= runner.trainer.global_step > 0
            self._applied = AppliedSteps(runner.trainer)
        runner = self.seen(runner)
        optimizer = runner.optimizer
        if not optimizer:
            raise ValueError(f"{type(self).__name__} needs an optimizer, and there is none")
        bases: dict[str, Sequence[Any]] = {
            name: self.bases_of(name, one) for name, one in optimizers_of(optimizer)
        }
        self.base = bases if isinstance(optimizer, dict) else next(iter(bases.values()))
        if self.warmup_epochs is not None:
            self.warmup_iters = None  # another loader than in the fit before, perhaps
        look_ahead(self, runner)
        self._judge(runner)

    def before_train_epoch(self, runner: Any) -> None:
        """Set the epoch's values, if they are counted in epochs."""
        runner = self.seen(runner)
        self._warmup_length(runner)  # which a subclass's get_lr may want to know
        if self.by_epoch:
            self.regular = self.regular_values(runner)
            self.set_values(runner, self.regular)

    def before_train_iter(self, runner: Any) -> None:
        """Set the iteration's values, if counted in iterations or warming up."""
        runner = self.seen(runner)
        if self.warmup is None:
            if not self.by_epoch:
                self.regular = regular = self.regular_values(runner)
                self.set_values(runner, regular)
            return
        length, now = self._warmup_length(runner), runner.iter
        if not self.by_epoch:
            self.regular = self.regular_values(runner)
        if now < length:
            self.set_values(runner, self.warm_values(now))
        elif not self.by_epoch or now == length or self.by_step:  # which may jump over it
            self.set_values(runner, self.regular)

    # -- counting ----------------------------------------------------------------------------

    def seen(self, runner: Any) -> Any:
        """Return the runner as the policy sees it: counted in what the hook counts."""
        if not self.by_step or type(runner) is InSteps:
            return runner
        return InSteps(runner, self._skipped)

    @property
    def small_unit(self) -> str:
        """What is counted within an epoch, in words."""
        return "optimizer step" if self.by_step else "iteration"

    def iters_of(self, runner: Any, epochs: int) -> int:
        """Return the iterations of the run's first epochs; its steps, with ``by_step``.

        Raises:
            ValueError: if that is not known.
        """
        if self.by_step:
            steps: int = runner.optimizer_steps_of(epochs)
            return steps
        batches = runner.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError(
                f"{type(self).__name__} counts epochs as iterations: the training loader needs a "
                "length"
            )
        return epochs * int(batches)

    def state_dict(self) -> dict[str, Any]:
        """Return what the counters do not tell: the steps that were skipped, if any were."""
        return {"skipped_steps": self._skipped} if self._skipped else {}

    @property
    def _skipped(self) -> int:
        return self._skipped_before + (0 if self._applied is None else self._applied.skipped)

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Forget the steps of another run."""
        self._skipped_before = 0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self._skipped_before = state_dict.get("skipped_steps", 0)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Listen to the optimizers no longer."""
        if self._applied is not None:
            self._applied.close()
            self._skipped_before, self._applied = self._skipped, None

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """The same: there is no teardown then."""
        self.teardown(trainer, pl_module, "fit")

    # -- helpers -----------------------------------------------------------------------------

    def _judge(self, runner: Any) -> None:
        """Refuse a schedule on whose way there is a value that must not be."""
        runner = self.seen(runner)
        total: Any = self.length_of(runner)
        if not self.judges() or (self.needs_length and total is None):
            return  # one of a subclass's own, which is judged as it is set; or it never moves
        judged = set()
        for name, i, _, base in with_groups(runner.optimizer, self.base):
            for now, position, factor in () if base in judged else self._moments(runner):
                value: Any = "no number"
                with contextlib.suppress(ArithmeticError):
                    value = self.warmed(self.value(base, position, total), factor)
                if isinstance(value, str) or not self.allows(value):
                    where = place(name, dict(optimizers_of(runner.optimizer))[name], i)
                    raise ValueError(self.out_of_range(where, value, now))
            judged.add(base)

    def _moments(self, runner: Any) -> Iterator[tuple[str, int, float]]:
        """Yield when to look: in words, the policy's position and the warm-up's factor."""
        length, total = self._warmup_length(runner), self.length_of(runner)
        batches: float = 1
        if self.by_epoch:
            try:
                batches = self.iters_of(runner, 1)
            except ValueError:  # nobody knows when the first epoch ends
                batches = float("inf")
        for now in _some_of(length):
            position = int(now // batches)
            if total is None or position < total:
                yield f"{self.small_unit} {now}", position, self._factor(now)
        for position in _some_of(1 if total is None else total):
            yield f"{'epoch' if self.by_epoch else self.small_unit} {position}", position, 1.0

    def _progress(self, runner: Any) -> tuple[int, Any]:
        """Return what ``value`` takes: position and total."""
        position = runner.epoch if self.by_epoch else runner.iter
        return position, self.total_of(runner) if self.needs_length else None

    def _from_policy(self, runner: Any, bases: Values) -> Values:
        position, total = self._progress(runner)
        if isinstance(bases, dict):
            return {name: self._of_these(Bases(b), position, total) for name, b in bases.items()}
        return self._of_all(bases, position, total)

    def _of_all(self, bases: Sequence[Any], position: int, total: Any) -> list[float]:
        """Return the value of each group."""
        if self._known is None or not self._known.are(bases):
            self._known = Bases(bases)
        return self._of_these(self._known, position, total)

    def _of_these(self, bases: Bases, position: int, total: Any) -> list[float]:
        at_once = "at_once" in vars(type(self)) and self.at_once
        return bases.values(self.value, position, total, at_once=at_once)

    def _factor(self, now: int) -> float:
        assert self.warmup_iters is not None
        return warm_up(now, self.warmup_iters, kind=self.warmup, ratio=self.warmup_ratio)

    def length_of(self, runner: Any) -> int | None:
        """Return the length of the run as the policy counts it, if it is known."""
        total: int | None = runner.max_epochs if self.by_epoch else runner.max_iters
        return total

    def total_of(self, runner: Any) -> int:
        """Return the length of the run.

        Raises:
            ValueError: if it is not known.
        """
        total = self.length_of(runner)
        if total is None:
            limit = "max_epochs" if self.by_epoch else STEPS if self.by_step else ITERATIONS
            raise ValueError(f"{type(self).__name__} needs the length of the run: give {limit}")
        return total

    def _warmup_length(self, runner: Any) -> int:
        if self.warmup is None:
            return 0
        if self.warmup_iters is None:
            self.warmup_iters = self.iters_of(runner, self.warmup_epochs or 0)
        return self.warmup_iters


def _some_of(length: int) -> list[int]:
    """Return up to about a thousand positions over a length, the first and the last among them."""
    every = max(1, length // 1000)
    return sorted({*range(0, length, every), *range(max(length - 1, 0), length)})
