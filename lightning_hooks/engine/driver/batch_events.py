"""The two Lightning events of a training batch, each a function made for the hooks as they are.

They are called in every batch, so what stays the same from batch to batch is found out when they
are made. Whatever changes that (a hook more, a model assigned, the next epoch) has them made anew.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from lightning_hooks.engine.driver.calls import BatchEvent, Calls
from lightning_hooks.engine.driver.ownership import Ownership, trains_like_mmcv
from lightning_hooks.engine.driver.step_capture import TrainingStep
from lightning_hooks.engine.runner.iter_runner import IterRunner
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["batch_end", "batch_start"]


def batch_start(runner: Runner, calls: Calls, ownership: Ownership) -> BatchEvent | None:
    """Return what calls ``before_train_iter``; None if there is nothing to do."""
    hooks = calls.at["before_train_iter"]
    begin = partial(_begin_iteration, runner) if isinstance(runner, IterRunner) else None
    if not (hooks or begin or ownership.is_taken):
        return None
    return calls.at_batch("before_train_iter", hooks, first=begin)


def batch_end(
    runner: Runner, calls: Calls, ownership: Ownership, step: TrainingStep
) -> BatchEvent | None:
    """Return what calls ``after_train_iter``, or what is left of it after the training step.

    None if there is nothing to do.
    """
    hooks = calls.at["after_train_iter"]
    owned, by_iter = ownership.is_taken, isinstance(runner, IterRunner)
    # a stop that one of several ranks asks for at any point is settled here
    if not (hooks or runner.world_size > 1 or owned or by_iter or step.is_read):
        return None

    def settle() -> None:
        if owned and isinstance(runner, IterRunner) and runner.ends_with_batch():
            runner.should_stop = True  # Lightning counts the hooks' steps, not iterations
        if calls.settles or runner._stop_requested:
            calls.settle_stop()

    return calls.at_batch(
        "after_train_iter",
        hooks[ownership.split(hooks) :],
        first=step.collect if step.is_read and not owned else None,
        ends=True,
        last=settle if calls.settles or (owned and by_iter) else None,
    )


def _begin_iteration(runner: IterRunner, batch: Any, batch_idx: int) -> None:
    runner.mode = "train"
    runner.begin_batch(batch_idx)
    if trains_like_mmcv(runner.module):
        runner.module.train()
