"""Find what an average gets in the way of when a fit starts, and what is likely a mistake."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.driver.collect import hooks_of
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hook_states import Identity, distinct_names
from lightning_hooks.schedules.averages import share_of_beginning

__all__ = [
    "check_averages",
    "check_device",
    "check_length",
    "check_momentum_is_no_decay",
    "check_start",
    "swaps_as_mmcv",
    "warn_of_later_fit",
]


def check_averages(averages: list[Any], trainer: L.Trainer) -> None:
    """Check the averages of a Trainer against each other, and against those that are not ours.

    Args:
        averages: The hooks that average, in the order given; the first is evaluated with.
        trainer: Their Trainer.

    Raises:
        ValueError: for a hook that swaps the weights as mmcv's EMAHook does: each of the two would
            take the other's average for the weights to train on with.
    """
    first, *others = distinct_names([Identity.of(hook) for hook in averages])
    for hook in hooks_of(trainer):
        if swaps_as_mmcv(hook):
            raise ValueError(
                f"{first} and {class_name(hook)} of {type(hook).__module__} both swap the weights "
                "of the model for an average, and training would go on from the other's; leave one "
                "out"
            )
    if others:
        rank_zero_warn(
            f"{' and '.join([first, *others])} each keep an average of the weights: {first}, the "
            "first in callbacks=[...], is evaluated with and is the state_dict of checkpoints, and "
            f"{', '.join(others)} only kept beside it, for apply_to() and export(); put first the "
            "one to evaluate with, or leave out all but one"
        )
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, WeightAveraging):
            other = type(callback).__name__
            rank_zero_warn(
                f"{other} and {first} both evaluate with an average of the weights: validation has "
                f"that of {other}, as has the module after the run, and the state_dict of "
                f"checkpoints is that of {first}; leave one of them out"
            )
        elif isinstance(callback, StochasticWeightAveraging):
            rank_zero_warn(
                f"{type(callback).__name__} and {first} both give the module an average of the "
                "weights when the run ends; leave one of them out"
            )


def swaps_as_mmcv(hook: Any) -> bool:
    """Whether a hook swaps the weights as the EMAHook of mmcv, mmdet and MMEngine does."""
    return hasattr(getattr(hook, "foreign_hook", hook), "_swap_ema_parameters")


def check_device(hook: Any) -> None:
    """Check that the average's device is here.

    Args:
        hook: A hook that averages, with a ``device``.

    Raises:
        ValueError: for a device that torch cannot use.
    """
    try:
        torch.empty(0, device=hook.device)
    except (RuntimeError, AssertionError) as error:  # which one depends on torch's build
        raise ValueError(
            f"{class_name(hook)}(device={hook.device!r}): torch cannot use this device here: "
            f"{str(error).partition('. ')[0]}; write device='cpu', or leave it out for the model's"
        ) from None


def check_momentum_is_no_decay(hook: Any) -> None:
    """Warn of a momentum that is likely meant as a decay.

    Args:
        hook: A hook that averages, with or without a ``momentum``.
    """
    momentum = getattr(hook, "momentum", 0)
    if momentum > 0.5:
        rank_zero_warn(
            f"{class_name(hook)}(momentum={momentum}): the momentum is the weight of the model in "
            "the average, which is little more than the model itself then; the decay of timm and "
            f"torch is 1 - momentum: for a decay of {momentum} write momentum={1 - momentum:.6g}"
        )


def check_start(hook: Any, runner: Any) -> None:
    """Warn of an average that begins after the end of the run, or has no second update in it.

    Args:
        hook: A hook that averages from ``begin_epoch`` and ``begin_iter`` on, every ``interval``.
        runner: The run.
    """
    lengths = {"begin_epoch": runner.max_epochs, "begin_iter": runner.max_iters}
    for name, length in lengths.items():
        begin, unit = getattr(hook, name), name.removeprefix("begin_")
        if length is not None and begin >= length > 0 and not runner.trainer.fast_dev_run:
            runner.logger.warning(  # no Python warning: another fit may go on from this one
                f"{class_name(hook)}({name}={begin}) averages nothing: the run has {length} "
                f"{unit}{'s' * (length > 1)}, counted from 0; write a {name} below {length}"
            )
    steps = runner.max_optimizer_steps or math.inf
    if hook.interval > max(steps, 1) and not runner.trainer.fast_dev_run:
        runner.logger.warning(
            f"{class_name(hook)}(interval={hook.interval}) updates the average once at most: the "
            f"run has {steps} optimizer steps; write an interval below"
        )


def check_length(hook: Any, runner: Any) -> None:
    """Warn of an average that a run is too short for: it stays near the weights of the start.

    Args:
        hook: An ``EMAHook``.
        runner: The run.
    """
    steps = _averaged_steps(hook, runner)
    if not steps or runner.trainer.fast_dev_run:
        return
    momentum, warm_up, larger = hook.momentum, hook.warm_up, float(f"{min(0.5, 10 / steps):.1g}")
    share = partial(share_of_beginning, steps=steps, interval=hook.interval)
    kept = share(momentum, warm_up)
    if kept <= 0.5:
        return
    if share(momentum, 0) <= 0.5:
        advice = "a smaller warm_up, such as 0"
    elif share(larger, warm_up) <= 0.5:
        advice = f"a larger momentum, such as {larger}"
    else:
        both = f"warm_up=0 and a larger momentum, such as {larger}"
        advice = both if warm_up > 1 else f"a larger momentum, such as {larger}"
    runner.logger.warning(
        f"{class_name(hook)}(momentum={momentum}, warm_up={warm_up}): after the {steps} optimizer "
        f"steps that it averages in this run {kept:.0%} of the average, with which it is "
        f"validated, are still the weights of its beginning; write {advice}, or train longer"
    )


def _averaged_steps(hook: Any, runner: Any) -> int:
    """Return the optimizer steps from where averaging begins to the end; 0 if unknown."""
    steps: float = runner.max_optimizer_steps or 0
    if math.isinf(steps):
        return 0
    waits = [(hook.begin_epoch, runner.max_epochs), (hook.begin_iter, runner.max_iters)]
    waited = max(begin / length if length and length > 0 else 0.0 for begin, length in waits)
    return round(steps * max(0.0, 1 - waited))


def check_strategy(hook: Any, trainer: L.Trainer) -> None:
    """Check that the parameters are the module's own.

    Raises:
        ValueError: for a strategy that flattens or partitions them.
    """
    strategy = trainer.strategy
    shards = strategy.restore_checkpoint_after_setup
    if shards and not isinstance(strategy, ModelParallelStrategy):
        raise ValueError(
            f"{type(hook).__name__} does not work with {type(strategy).__name__}, whose "
            "parameters are not the module's own; use ModelParallelStrategy, with "
            "torch's fully_shard() in configure_model(), or the strategy 'ddp'"
        )


def warn_of_later_fit(hook: Any) -> None:
    """Warn that a model is evaluated whose average was given up for a later fit's."""
    rank_zero_warn(
        f"{class_name(hook)} averages the model of a later fit now: this one is evaluated with its "
        "raw weights. Give each Trainer a hook of its own"
    )
