"""Checks of a schedule before the first iteration, against the run and its optimizers."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.hooks.updaters.param_groups import (
    describe_groups,
    describe_optimizers,
    with_groups,
)

__all__ = ["preflight"]


def preflight(hook: Any, runner: Any) -> None:
    """Check the schedule of an :class:`~lightning_hooks.hooks.updaters.base.Updater` in this run.

    Warn of what is odd in a run of this length.

    Raises:
        ValueError: if the schedule would fail during the run, or set an invalid value.
    """
    _check_length(hook, runner)
    _check_warmup(hook, runner)
    _check_values(hook, runner)
    _check_minimum(hook, runner)


def _check_length(hook: Any, runner: Any) -> None:
    me, groups = type(hook).__name__, describe_optimizers(runner.optimizer)
    if hook.by_epoch and not runner.counts_epochs:
        rank_zero_warn(
            f"{me}(by_epoch=True) never moves the {hook.quantity} of {groups} where iterations "
            "are counted"
        )
        return
    total = hook.required_length(runner) if hook.needs_length else _length_of(hook, runner)
    if total is None:
        return
    try:
        oddities = [*hook.check(total)]
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"{me} of {groups}: {error}") from None
    for oddity in () if runner.trainer.fast_dev_run else oddities:  # which is short on purpose
        rank_zero_warn(f"{me} of {groups}: {oddity}")


def _length_of(hook: Any, runner: Any) -> int | None:
    """Return the length of the run as the policy counts it; of ``max_steps`` in whole epochs."""
    total: int | None = hook.run_length(runner)
    if total is None and hook.by_epoch and runner.max_iters is not None:
        with contextlib.suppress(ValueError):  # the length of an epoch is unknown
            total = math.ceil(runner.max_iters / hook.iters_of(runner, 1))
    return total


def _check_warmup(hook: Any, runner: Any) -> None:
    total = runner.max_iters
    length = hook.warmup_epochs or hook.warmup_iters
    if hook.warmup is None and length:
        rank_zero_warn(
            f"{type(hook).__name__}(warmup_iters={length}) has no effect without the form of the "
            'warm-up: write warmup="linear", or leave warmup_iters out'
        )
    if hook.warmup is None or total is None or runner.trainer.fast_dev_run:
        return
    length = hook.warmup_length(runner)
    if length > total:
        rank_zero_warn(
            f"{type(hook).__name__} of {describe_optimizers(runner.optimizer)}: the warm-up of "
            f"{length} {hook.iteration_unit}s is longer than the run of {total}, which ends before "
            f"the {hook.quantity} is that of the schedule; give a warm-up of {total} at most, or "
            "train longer"
        )


def _check_values(hook: Any, runner: Any) -> None:
    total = hook.run_length(runner)
    if not hook.is_predictable() or (hook.needs_length and total is None):
        return
    checked = set()
    is_zero = True
    for group, _, base in with_groups(runner.optimizer, hook.base):
        for when, position, factor in () if base in checked else _moments(hook, runner):
            value: Any = "no number"
            with contextlib.suppress(ArithmeticError):
                value = hook.with_warmup(hook.value(base, position, total), factor)
            if not hook.is_valid(value):
                raise hook.range_error(describe_groups(*group), value, when)
            is_zero = is_zero and value == 0
        checked.add(base)
    if checked and is_zero:
        logging.getLogger("lightning_hooks").warning(
            "%s: the %s of %s is 0 from the beginning to the end of the run: give the optimizer "
            "one above 0, or leave the hook out",
            *(type(hook).__name__, hook.quantity, describe_optimizers(runner.optimizer)),
        )


def _check_minimum(hook: Any, runner: Any) -> None:
    """Warn of a minimum above the rate of every group; below some, as by layer, it may be meant."""
    minimum = getattr(hook, "_minimum", None)
    bases = [base for _, _, base in with_groups(runner.optimizer, hook.base)]
    if hook.symbol == "lr" and bases and minimum is not None and minimum > max(bases) > 0:
        logging.getLogger("lightning_hooks").warning(  # no Python warning: it may be meant
            "%s(min_lr=%g) is above the learning rate of %s, %g, which is where the schedule "
            "begins: write a min_lr below it",
            *(type(hook).__name__, minimum, describe_optimizers(runner.optimizer), max(bases)),
        )


def _moments(hook: Any, runner: Any) -> Iterator[tuple[str, int, float]]:
    """Yield moments of the run: their name, the policy's position and the warm-up's factor."""
    length, total = hook.warmup_length(runner), hook.run_length(runner)
    batches: float = 1
    if hook.by_epoch:
        try:
            batches = hook.iters_of(runner, 1)
        except ValueError:  # the length of the first epoch is unknown
            batches = float("inf")
    for now in _some_of(length):
        position = int(now // batches)
        if total is None or position < total:
            yield f"{hook.iteration_unit} {now}", position, hook.warmup_factor(now)
    for position in _some_of(1 if total is None else total):
        yield f"{'epoch' if hook.by_epoch else hook.iteration_unit} {position}", position, 1.0


def _some_of(length: int) -> list[int]:
    """Return up to about a thousand positions over a length, the first and the last among them."""
    every = max(1, length // 1000)
    return sorted({*range(0, length, every), *range(max(length - 1, 0), length)})
