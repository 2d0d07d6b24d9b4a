"""What is said of a schedule before the first iteration, with the optimizers it is for."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.runner.iter_runner import IterRunner
from lightning_hooks.hooks.updaters.param_groups import groups_of

__all__ = ["look_ahead"]


def look_ahead(hook: Any, runner: Any) -> None:
    """Say what is odd about a hook's schedule in this run.

    Args:
        hook: An :class:`~lightning_hooks.hooks.updaters.base.Updater`.
        runner: The run that starts.

    Raises:
        ValueError: if the schedule would fail on the way.
    """
    me, whose = type(hook).__name__, groups_of(runner.optimizer)
    for config in runner.trainer.lr_scheduler_configs:
        if hook.fights_with(config.scheduler):
            other = groups_of(config.scheduler.optimizer)
            rank_zero_warn(
                f"{type(config.scheduler).__name__} of {other} and {me} both set the "
                f"{hook.quantity}: {me} wins in every step it sets; leave one of them out"
            )
    if hook.by_epoch and isinstance(runner, IterRunner):
        rank_zero_warn(
            f"{me}(by_epoch=True) never moves the {hook.quantity} of {whose} where iterations "
            "are counted"
        )
        return
    total = hook.total_of(runner) if hook.needs_length else hook.length_of(runner)
    if total is None:
        return
    try:
        for oddity in hook.check(total):
            rank_zero_warn(f"{me} of {whose}: {oddity}")
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"{me} of {whose}: {error}") from None
