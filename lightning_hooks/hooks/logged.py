"""Warn where no logger takes the values of a hook that only logs."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.priority import loggers_of
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["warn_unless_logged"]


def warn_unless_logged(hook: Any, runner: Runner) -> None:
    """Warn if a run has no logger for the numbers of a hook, once, when the run begins.

    Args:
        hook: The hook.
        runner: The runner.
    """
    if not loggers_of(runner.hooks):
        runner.logger.warning(
            "%s: the Trainer has no logger hook, so the values are in no log; add "
            "TextLoggerHook(), or LightningLoggerHook() for the Trainer's own loggers",
            class_name(hook),
        )
