"""The lines that a run begins with: its hooks, and what about them may be wrong."""

from __future__ import annotations

import sys
from typing import Any

import lightning as L

from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.usage_errors import POINTS, misspelt_points

__all__ = ["announce", "announce_misspelt"]


def announce(runner: Any) -> None:
    """Log the hooks in the order of their calls, and methods that look like misspelt points.

    mmcv's table is for those who know it: where an old hook is hosted, or mmcv imported.

    Args:
        runner: The runner that begins.
    """
    hooks, logger = runner.hooks, runner.logger
    if "mmcv" in sys.modules or not all(isinstance(hook, L.Callback) for hook in hooks):
        table = runner.get_hook_info()
        logger.info("Hooks will be executed in the following order:\n%s", table)
    elif hooks:
        number = f"{len(hooks)} hooks" if len(hooks) > 1 else "1 hook"
        logger.info("%s, called in this order: %s", number, ", ".join(map(class_name, hooks)))
    if not runner.writes_files:
        writers = [hook for hook in hooks if getattr(hook, "writes_files", False)]
        names = ", ".join(dict.fromkeys(map(class_name, writers))) or "runner.save_checkpoint()"
        logger.info("fast_dev_run: nothing is written by %s", names)
    announce_misspelt(runner)


def announce_misspelt(runner: Any) -> None:
    """Log the methods of hooks whose names look like misspelt points.

    Args:
        runner: The runner that begins.
    """
    for hook in runner.hooks:
        written = getattr(hook, "foreign_hook", hook)
        points = getattr(hook, "known_points", POINTS)
        for name, point in misspelt_points(written, points):
            message = "%s.%s() is called at no point; did you mean %s()?"
            runner.logger.warning(message, class_name(hook), name, point)
