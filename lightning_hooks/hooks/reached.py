"""Warn of an argument that names a moment after the end of the run."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["warn_unless_reached"]


def warn_unless_reached(
    hook: Any, runner: Runner, effect: str, *, unit: str = "iter", **argument: int | None
) -> None:
    """Warn if a run ends before a hook's moment, once, when the run begins.

    Args:
        hook: The hook.
        runner: The runner.
        effect: What follows from this, for the message.
        unit: ``"epoch"`` or ``"iter"``.
        argument: The hook's argument: the epochs or iterations before the moment, or None.
    """
    ((name, value),) = argument.items()
    length = runner.max_epochs if unit == "epoch" else runner.max_iters
    if not value or not length or runner.trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    if value >= length > 0:
        units = ("epoch" if unit == "epoch" else "iteration") + ("" if length == 1 else "s")
        runner.logger.warning(
            "%s: %s=%s is not reached in this run of %s %s: %s",
            *(class_name(hook), name, value, length, units, effect),
        )
