"""Find what else sets the quantity of a schedule, and warn which of them sets it last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, StochasticWeightAveraging
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.priority import FAMILIES, is_family
from lightning_hooks.engine.runner.optimizer_steps import batches_of_step
from lightning_hooks.hooks.updaters.param_groups import describe_optimizers, optimizers_of

__all__ = ["warn_of_conflicts", "winners"]


def warn_of_conflicts(hook: Any, trainer: L.Trainer) -> None:
    """Warn of hooks, schedulers and callbacks that set what this schedule sets.

    Args:
        hook: An :class:`~lightning_hooks.hooks.updaters.base.Updater` whose run has begun.
        trainer: Its Trainer.
    """
    runner = Driver.of(trainer).runner
    _warn_of_hooks(hook, runner)
    if not runner.hooks_step:  # there no scheduler is stepped, of which the driver warns
        _warn_of_schedulers(hook, runner)
    if hook.symbol == "lr":
        _warn_of_swa(hook, runner)
        _warn_of_monitors(hook, runner)


# -- several hooks -------------------------------------------------------------------------


def _warn_of_hooks(hook: Any, runner: Any) -> None:
    family = next(base.__name__ for base in type(hook).__mro__ if base.__name__ in FAMILIES)
    own = _optimizers(hook, runner)
    rivals = [
        other
        for other in runner.hooks
        if is_family(other, family)
        and not _overrides(other, family, f"_set_{hook.symbol}")  # it may leave groups alone
        and own.keys() & _optimizers(other, runner).keys()
    ]
    if len(rivals) < 2 or rivals[-1] is not hook:  # the last one warns for all of them
        return
    names = [class_name(one) for one in rivals]
    if len(set(names)) < len(names):
        names = [f"{name} (number {i} in their order)" for i, name in enumerate(names, 1)]
    rank_zero_warn(
        f"{' and '.join(names)} {'both' if len(names) == 2 else 'all'} set the {hook.quantity} of "
        f"{describe_optimizers(own)}: {winners(names, [_writes(one, runner) for one in rivals])}; "
        "leave out all but one"
    )


def _optimizers(hook: Any, runner: Any) -> dict[str, Any]:
    """Return the optimizers that a hook sets, by name: those for which it has bases."""
    base = getattr(hook, "base", None)
    found = optimizers_of(runner.optimizer)
    return {name: one for name, one in found if not isinstance(base, dict) or name in base}


def _overrides(hook: Any, family: str, name: str) -> bool:
    """Whether a hook has a method of its own in place of its family's, of mmcv or of ours."""
    base = next(base for base in type(hook).__mro__ if base.__name__ == family)
    return name in vars(hook) or getattr(type(hook), name, None) is not getattr(base, name, None)


def _writes(hook: Any, runner: Any) -> float:
    """Return in how many first iterations a hook sets its quantity; one by epoch also before each.

    It is 0 without a warm-up, whose last value is set in the iteration after it, and infinity for
    a hook by iteration.
    """
    has_warmup = getattr(hook, "warmup", None) is not None
    if not hook.by_epoch or (has_warmup and getattr(hook, "by_step", False)):
        return math.inf
    if not has_warmup:
        return 0
    own = hasattr(hook, "warmup_length")
    return 1 + int(hook.warmup_length(runner) if own else hook.warmup_iters or 0)


def winners(names: Sequence[str], writes: Sequence[float]) -> str:
    """Return which of several hooks sets a value last before a step, and so wins.

    Args:
        names: The hooks in the order of their calls.
        writes: In how many first iterations each sets it: 0 for a hook by epoch without warm-up,
            infinity for one by iteration. Those by epoch also set it before each epoch.

    >>> winners(["A", "B"], [0, 501])
    'B wins in every step'
    >>> winners(["A", "B"], [501, 0])
    'A wins in the first 501 iterations and the rest of that epoch, B after that'
    >>> winners(["A", "B"], [math.inf, 501])
    'B wins in the first 501 iterations, A after that'
    """
    segments: list[tuple[float, str]] = []  # the iteration at whose start each ends, and the winner
    for end in sorted({*writes, math.inf} - {0}):
        setting = [i for i, number in enumerate(writes) if number >= end]
        winner = names[setting[-1] if setting else -1]
        if segments and segments[-1][1] == winner:
            segments.pop()
        segments.append((end, winner))
    *early, (_, final) = segments
    if not early:
        return f"{final} wins in every step"
    parts = [f"{name} wins in the first {end} iterations" for end, name in early]
    rest = "" if math.inf in writes else " and the rest of that epoch"
    return f"{', '.join(parts)}{rest}, {final} after that"


# -- a scheduler beside a hook -------------------------------------------------------------


def _warn_of_schedulers(hook: Any, runner: Any) -> None:
    own = _optimizers(hook, runner).values()
    for config in runner.trainer.lr_scheduler_configs:
        scheduler, name = config.scheduler, type(config.scheduler).__name__
        if hook.conflicts_with(scheduler) and any(scheduler.optimizer is one for one in own):
            rank_zero_warn(
                f"{name} of {describe_optimizers(scheduler.optimizer)} and {class_name(hook)} both "
                f"set the {hook.quantity}: {_beside(hook, runner, name, config)}; leave one out"
            )


def _warn_of_swa(hook: Any, runner: Any) -> None:
    for callback in runner.trainer.callbacks:
        if isinstance(callback, StochasticWeightAveraging):
            rank_zero_warn(
                f"StochasticWeightAveraging and {class_name(hook)} both set the {hook.quantity} of "
                f"{describe_optimizers(runner.optimizer)}: {_beside(hook, runner, 'SWALR')}; leave "
                f"{class_name(hook)} out, or write StochasticWeightAverageHook in place of "
                "StochasticWeightAveraging: it averages and leaves the learning rate alone"
            )


def _warn_of_monitors(hook: Any, runner: Any) -> None:
    """Warn, at the first schedule, of monitors that read the rates before the driver sets them."""
    first = next(one for one in runner.hooks if is_family(one, "LrUpdaterHook"))
    callbacks = runner.trainer.callbacks
    before = itertools.takewhile(lambda one: not isinstance(one, Driver), callbacks)
    if first is hook and any(isinstance(one, LearningRateMonitor) for one in before):
        rank_zero_warn(
            f"LearningRateMonitor stands before {class_name(hook)} in callbacks=[...]: it logs the "
            "rates before the hook sets them, those of the step or epoch before; put it after the "
            "hooks"
        )


def _beside(hook: Any, runner: Any, name: str, config: Any = None) -> str:
    """Return in which steps a hook wins beside a scheduler of this name."""
    me, writes = class_name(hook), _writes(hook, runner)
    batches, first = runner.trainer.num_training_batches, _first_step(runner, config)
    if math.isinf(writes) or (runner.counts_epochs and first >= batches):
        return f"{me} wins in every step"
    begin = f"from the start of {'each epoch' if runner.counts_epochs else 'the run'}"
    begin = f"in the first {writes} iterations and {begin}, each" if writes else begin
    each = "every batch" if first == 1 else f"every {first} batches"
    when = f" after {each}" if 0 < first < batches else ""
    return f"{me} wins {begin} until {name} is stepped{when}, {name} from there on"


def _first_step(runner: Any, config: Any) -> float:
    """Return after how many batches of an epoch a scheduler is first stepped; 0 if unknown.

    ``StochasticWeightAveraging`` has a scheduler by epoch, without a config when the run begins.
    """
    batches: float = runner.trainer.num_training_batches
    if not runner.module.automatic_optimization:
        return 0  # the module steps it
    if config is None or config.interval == "epoch":
        return batches
    return min(batches, math.lcm(config.frequency, batches_of_step(runner)))
