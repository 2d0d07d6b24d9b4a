"""Give hooks' values to Lightning's callbacks, and the module's values to the loggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["log_values", "publish_averages", "publish_results"]


def publish_results(runner: Runner) -> None:
    """Add values logged since the last call to ``trainer.callback_metrics``.

    The values are the averages of the loggers' lines, and scores put into the log buffer's output
    by hooks. Nothing is read from the device.
    """
    buffer = runner.log_buffer
    if not buffer.news:
        return
    news = {**buffer.news}
    buffer.news.clear()
    if runner.mode == "val":  # the time of a batch stays the training's
        steps = {*runner.train_log.val_history, "eval_iter_num"}
        news = {key: value for key, value in news.items() if key not in steps}
    runner.callback_values.publish(news)


def publish_averages(runner: Runner) -> None:
    """Add the averages of the epoch so far to ``trainer.callback_metrics``.

    Called at the end of an epoch or a pass over the data, and before a validation in mid-epoch.
    """
    # the window ends with the next iteration
    averages = runner.log_buffer.window(progress.batch_idx(runner.trainer) + 2)
    lr, momentum = (runner.step_rates.first(what, what) for what in ("lr", "momentum"))
    runner.callback_values.publish({**averages, **lr, **momentum})


def log_values(runner: Runner, mode: str, values: Mapping[str, Any], batches: int = 0) -> None:
    """Have the loggers write values of a whole epoch.

    Hosted loggers of mmcv get no values: mmcv has no epoch-level values.

    Args:
        runner: The runner.
        mode: ``"train_epoch"``; or ``"val"`` or ``"test"``, outside of a fit.
        values: The values by name.
        batches: The number of batches, for ``"val"`` and ``"test"``.
    """
    hooks = natives_with("_log_values", runner.hooks)
    has_given = any(hook._given for hook in hooks)
    if not hooks or not (values or runner.samples.waiting or has_given):
        return
    before, runner.mode = runner.mode, mode
    try:
        with runner.val_log():
            runner.log_buffer.update(values)
            if batches:
                runner.log_buffer.output["eval_iter_num"] = batches
            for hook in hooks:
                with calling(hook, "_log_values", runner):
                    hook._log_values(runner)
    finally:
        runner.samples.waiting.clear()
        runner.mode = before
