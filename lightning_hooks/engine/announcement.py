"""Log the first and last lines of a run: hooks, directory, and likely mistakes."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hosted import HostedHook, foreign
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.points import POINTS
from lightning_hooks.engine.usage_errors import misspelt_points

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["announce", "announce_end", "announce_misspelt"]


def announce(runner: Runner) -> None:
    """Log the hooks in calling order, and methods with a misspelt point's name.

    A runner of the stand-in logs what mmcv logs: a table of the points, and no directory.

    Args:
        runner: The runner at the beginning of a run.
    """
    hooks, logger = runner.hooks, runner.logger
    if runner.loops_itself:
        table = runner.get_hook_info()
        logger.info("Hooks will be executed in the following order:\n%s", table)
    elif hooks:
        number = f"{len(hooks)} hooks" if len(hooks) > 1 else "1 hook"
        logger.info("%s, called in this order: %s", number, ", ".join(map(class_name, hooks)))
    writers = ", ".join(dict.fromkeys(class_name(hook) for hook in hooks if _writes(hook)))
    if not runner.writes_files:
        names = writers or "runner.save_checkpoint()"
        logger.info("fast_dev_run: nothing is written by %s", names)
    elif writers and not runner.loops_itself:
        logger.info("the files of this run will be in %s", runner.work_dir)
    announce_misspelt(runner)


def announce_end(runner: Runner) -> None:
    """Log the directory of the run's files; in a spawned process, the end of the hooks' values.

    Args:
        runner: The runner at the end of a run.
    """
    writes = runner.writes_files and any(map(_writes, runner.hooks))
    if writes and not runner.loops_itself:
        runner.logger.info("the files of this run are in %s", runner.work_dir)
    launched = runner.trainer.strategy.launcher is not None
    if launched and multiprocessing.parent_process() is not None:  # ddp_spawn, ddp_notebook
        runner.logger.info(
            "this fit ran in processes of its own, and what its hooks hold, such as an average, "
            "ends with them; it is in the checkpoints: trainer.validate(..., ckpt_path='last')"
        )


def _writes(hook: Any) -> bool:
    return isinstance(hook, Participant) and hook.writes_files


def announce_misspelt(runner: Runner) -> None:
    """Log methods of hooks with a name close to a point's name.

    Args:
        runner: The runner at the beginning of a run.
    """
    for hook in runner.hooks:
        points = hook.known_points if isinstance(hook, HostedHook) else POINTS
        for name, point in misspelt_points(foreign(hook), points):
            message = "%s.%s() is called at no point; did you mean %s()?"
            runner.logger.warning(message, class_name(hook), name, point)
