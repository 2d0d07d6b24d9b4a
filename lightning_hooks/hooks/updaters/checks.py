"""Checks at the start of a run: errors for bad schedules, warnings of likely mistakes."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import LearningRateMonitor, StochasticWeightAveraging

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.priority import FAMILIES, of_family
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.utils.warn import rank_zero_warn

if TYPE_CHECKING:
    from lightning_hooks.hooks.updaters.updater import Updater

__all__ = [
    "check_schedule",
    "overrides",
    "refuse_length",
    "report_restored_bases",
    "warn_of_early_monitors",
    "warn_of_rivals",
]


def check_schedule(hook: Updater, runner: Runner) -> None:
    """Check a schedule against the run, before the first iteration.

    Args:
        hook: An :class:`~lightning_hooks.hooks.updaters.updater.Updater` with its bases.
        runner: The runner, counting as the hook counts.

    Raises:
        ValueError: if the schedule would fail during the run, or set an invalid value.
    """
    name = f"{type(hook).__name__} of {param_groups.describe_optimizers(runner.optimizer)}"
    counts = not hook.by_epoch or runner.counts_epochs
    total = _length(hook, runner) if counts else hook._run_length(runner)
    if counts and total is not None:
        try:
            hook._check(total)
        except (ArithmeticError, ValueError) as error:
            refuse_length(hook, runner, str(error))
            return
    moves = _check_values(hook, runner, total)
    if runner.trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    if not (counts and moves):
        reason = ": by_epoch=True, and this run counts iterations"
        if counts:
            unit = "epoch" if hook.by_epoch else hook._iteration_unit
            reason = f" in this run of {total} {unit}{'' if total == 1 else 's'}" if total else ""
        reason += hook._why_still(runner)
        rank_zero_warn(f"{name} never moves the {hook._quantity.name}{reason}")
    _warn_of_long_warm_up(hook, runner, name)
    _warn_of_no_warm_up(hook, name)


def refuse_length(hook: Updater, runner: Runner, reason: str) -> None:
    """Refuse a run too short for a schedule; a ``fast_dev_run`` leaves the schedule out.

    Args:
        hook: The hook.
        runner: The runner, counting as the hook counts.
        reason: What does not fit.

    Raises:
        ValueError: except in a ``fast_dev_run``.
    """
    name = f"{type(hook).__name__} of {param_groups.describe_optimizers(runner.optimizer)}"
    if not runner.trainer.fast_dev_run:  # type: ignore[attr-defined]
        raise ValueError(f"{name}: {reason}") from None
    runner.logger.info("fast_dev_run leaves out %s: %s", name, reason)
    runner.hooks.remove(hook)


def _length(hook: Updater, runner: Runner) -> int | None:
    """Return the length of the run in the policy's unit; ``max_steps`` in whole epochs."""
    total: int | None = (hook._required_length if hook._needs_length else hook._run_length)(runner)
    if total is None and hook.by_epoch and runner.max_iters is not None:
        with contextlib.suppress(ValueError):  # the length of an epoch is unknown
            total = math.ceil(runner.max_iters / _epoch_length(hook, runner))
    return total


def _epoch_length(hook: Updater, runner: Runner) -> int:
    """Return the iterations (steps, with ``by_step``) of the present epoch."""
    return hook._iters_until(runner, runner.epoch + 1) - hook._iters_until(runner, runner.epoch)


def _check_values(hook: Updater, runner: Runner, total: int | None) -> bool:
    """Raise for an invalid value during the run; return whether the values change."""
    if not hook._is_predictable() or (hook._needs_length and total is None):
        return True
    positions = _sample(1 if total is None else total)
    moves = hook._is_constant or hook.warmup is not None or len(positions) == 1
    checked = set()
    for group, _, base in param_groups.with_groups(runner.optimizer, hook._base):
        if base in checked:
            continue
        checked.add(base)
        values = set()
        for unit, now, position, factor in _moments(hook, runner, positions):
            value: Any
            try:  # contextlib.suppress would take half of the time of a long schedule's check
                regular = hook._value(base, position, total)
                values.add(regular)
                value = hook._quantity.warm_up(factor, regular)
            except ArithmeticError:
                value = "no number"
            if not hook._is_valid(value):
                where = param_groups.describe_groups(*group)
                raise hook._range_error(where, value, f"{unit} {now}")
        moves = moves or len(values) > 1
    return moves or not checked


def _moments(
    hook: Updater, runner: Runner, positions: list[int]
) -> Iterator[tuple[str, int, int, float]]:
    """Yield unit, number, the policy's position and the warm-up's factor of moments of the run."""
    length, total = hook._warmup_length(runner), hook._run_length(runner)
    batches: float = 1
    if hook.by_epoch:
        try:
            batches = _epoch_length(hook, runner)
        except ValueError:  # the length of an epoch is unknown
            batches = math.inf
    for now in _sample(length):
        position = int(now // batches)
        if total is None or position < total:
            yield hook._iteration_unit, now, position, hook._warmup_factor(now)
    unit = "epoch" if hook.by_epoch else hook._iteration_unit
    for position in positions:
        yield unit, position, position, 1.0


def _sample(length: int) -> list[int]:
    """Return about a thousand positions, with the first and the last."""
    every = max(1, length // 1000)
    return sorted({*range(0, length, every), *range(max(length - 1, 0), length)})


def _warn_of_no_warm_up(hook: Updater, name: str) -> None:
    length = hook.warmup_iters or hook._warmup_share or hook._warmup_epochs
    if hook.warmup is None and length:
        rank_zero_warn(
            f'{name}: warmup_iters={length} has no effect without warmup: write warmup="linear"'
        )


def _warn_of_long_warm_up(hook: Updater, runner: Runner, name: str) -> None:
    total = runner.max_iters
    if total is not None and (length := hook._warmup_length(runner)) > total:
        rank_zero_warn(
            f"{name}: the warm-up of {length} {hook._iteration_unit}s is longer than the run of "
            f"{total}"
        )


def report_restored_bases(hook: Updater, runner: Runner) -> None:
    """Log where a checkpoint has replaced the bases that ``configure_optimizers`` gives.

    Args:
        hook: The hook.
        runner: The runner.
    """
    pairs = [
        pair
        for _, optimizer in param_groups.optimizers_of(runner.optimizer)
        for pair in zip(
            hook._first_values(optimizer), hook._configured.get(optimizer, ()), strict=False
        )
    ]
    changed = [f"{new}, not {old}" for new, old in dict.fromkeys(pairs) if new != old]
    if changed:
        runner.logger.warning(
            "%s goes on from the %s of the checkpoint, in place of that of configure_optimizers: "
            "%s%s",
            class_name(hook),
            hook._quantity.name,
            listed(changed),
            "; base_lr=... gives another base rate" * (hook._quantity.symbol == "lr"),
        )


def warn_of_rivals(hook: Updater, runner: Runner) -> None:
    """Warn of hooks, schedulers and ``StochasticWeightAveraging`` for the same values.

    Args:
        hook: An :class:`~lightning_hooks.hooks.updaters.updater.Updater` in a run.
        runner: The run.
    """
    own = _optimizers(hook, runner)
    names = _rivals(hook, runner, own)
    if len(names) > 1:
        start = ""
        if hook._base:  # not read yet in a run of the stand-in, whose loop calls before_run
            origin = hook._base_arguments or f"the groups' initial_{hook._quantity.symbol}"
            start = f". {class_name(hook)} starts from {_bases(hook)}, {origin}"
            start += "; base_lr=... gives another base rate" * (hook._quantity.symbol == "lr")
        where = param_groups.describe_optimizers(own)
        rank_zero_warn(
            f"{' and '.join(names)} set the {hook._quantity.name} of {where}: "
            f"each step takes the value that was set last; leave out all but one{start}"
        )


def _rivals(hook: Updater, runner: Runner, own: Mapping[str, Any]) -> list[str]:
    """Return the names of all that set the values of a hook's own optimizers.

    None unless the hook is the last.
    """
    trainer = runner.trainer
    hooks = [
        other
        for other in of_family(runner.hooks, _family(hook).__name__)
        if not overrides(other, f"_set_{hook._quantity.symbol}")  # may set some groups only
        and own.keys() & _optimizers(other, runner).keys()
    ]
    if not hooks or hooks[-1] is not hook:  # the last hook warns for all
        return []
    names = [class_name(rival) for rival in hooks]
    if not runner.hooks_own_step:  # otherwise schedulers are not stepped, and the driver warns
        names += [
            type(config.scheduler).__name__
            for config in trainer.lr_scheduler_configs
            if (hook._quantity.symbol == "lr" or getattr(config.scheduler, "cycle_momentum", False))
            and any(config.scheduler.optimizer is optimizer for optimizer in own.values())
        ]
    if hook._quantity.symbol == "lr":
        names += [
            type(callback).__name__
            for callback in callbacks_of(trainer)
            if isinstance(callback, StochasticWeightAveraging)
        ]
    return names


def _bases(hook: Updater) -> str:
    """Return the distinct bases of a hook's groups."""
    each = hook._base.values() if isinstance(hook._base, dict) else [hook._base]
    return listed(list(dict.fromkeys(str(base) for bases in each for base in bases)))


def _optimizers(hook: Any, runner: Runner) -> dict[str, Any]:
    """Return the optimizers with bases in a hook, by name."""
    base = getattr(hook, "_base", None)
    named = param_groups.optimizers_of(runner.optimizer)
    return {
        name: optimizer for name, optimizer in named if not isinstance(base, dict) or name in base
    }


def _family(hook: Any) -> type:
    """Return the base class of the hooks for a quantity, mmcv's or ours."""
    return next(base for base in type(hook).__mro__ if base.__name__ in FAMILIES)


def overrides(hook: Any, *names: str) -> bool:
    """Whether a hook overrides a method of the base class for its quantity, mmcv's or ours."""
    own, base = type(hook), _family(hook)
    return any(
        name in vars(hook) or getattr(own, name, None) is not getattr(base, name, None)
        for name in names
    )


def warn_of_early_monitors(hook: Updater, runner: Runner) -> None:
    """Warn of a ``LearningRateMonitor`` before the hooks, with the rates of the last step.

    Args:
        hook: A hook for learning rates; only the first of a Trainer warns.
        runner: The run.
    """
    first = next(iter(of_family(runner.hooks, "LrUpdaterHook")), None)
    before = itertools.takewhile(
        lambda callback: not isinstance(callback, Driver), callbacks_of(runner.trainer)
    )
    if first is hook and any(isinstance(callback, LearningRateMonitor) for callback in before):
        rank_zero_warn(
            f"LearningRateMonitor stands before {class_name(hook)} in callbacks=[...] and logs the "
            "rates of the step or epoch before; put it after the hooks"
        )
