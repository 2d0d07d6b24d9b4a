"""A step's outputs as hooks see them, and what of them goes into the log buffer."""

from __future__ import annotations

from typing import Any

import torch

from lightning_hooks import loops
from lightning_hooks.log_buffer import LogBuffer
from lightning_hooks.priority import is_family
from lightning_hooks.runner import Runner
from lightning_hooks.step import OrphanLoss

__all__ = [
    "bound_log_buffer",
    "detached",
    "feed_log_buffer",
    "log_validation",
    "orphaned",
    "whole",
]


def detached(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs without the graph."""
    return {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in outputs.items()}


def orphaned(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a step whose backward is Lightning's: the loss says so when asked."""
    return {
        key: OrphanLoss.of(value)
        if isinstance(value, torch.Tensor) and (value.requires_grad or key == "loss")
        else value
        for key, value in outputs.items()
    }


def whole(outputs: dict[str, Any], batches: int) -> dict[str, Any]:
    """Return Lightning's outputs of a step with its loss undivided.

    Args:
        outputs: A dict whose loss is a copy without the graph.
        batches: By how many batches of a step Lightning has divided it.

    >>> whole({"loss": torch.tensor(0.25)}, 4)
    {'loss': tensor(1.)}
    """
    if outputs.get("loss") is None:
        return outputs
    return {**outputs, "loss": outputs["loss"] * batches}


def feed_log_buffer(runner: Runner, outputs: dict[str, Any]) -> None:
    """Give the log buffer a step's ``log_vars``, else its loss and what the module logged."""
    if runner.fills_log_buffer:
        return
    if "log_vars" in outputs:
        runner.log_buffer.update(outputs["log_vars"], outputs.get("num_samples", 1))
        return
    values = {}
    loss = outputs.get("loss")
    if loss is not None:
        values["loss"] = loss if type(loss) is torch.Tensor else _plain(loss)
    if runner.mode == "train" and runner.step_results:
        values.update(loops.step_metrics(runner.trainer, runner.seen_metrics))
    runner.log_buffer.update(values, outputs.get("num_samples", 1))


def _plain(loss: Any) -> Any:
    plain = getattr(loss, "plain", None)  # what a hook has computed from it has none
    if plain is None and isinstance(loss, torch.Tensor):
        return loss.as_subclass(torch.Tensor)
    return loss if plain is None else plain


def bound_log_buffer(runner: Runner) -> None:
    """Drop old values from a log buffer that no logger clears."""
    if not any(is_family(hook, "LoggerHook") for hook in runner.hooks):
        runner.log_buffer.trim(10_000)


def log_validation(runner: Runner, loggers: list[tuple[Any, Any]]) -> None:
    """Give the loggers what the module has logged, in a run without epochs that would end.

    The values of the training steps around it stay in their own buffer.

    Args:
        runner: The runner.
        loggers: Hooks with their ``after_val_epoch``; those that are loggers are called.
    """
    values = loops.val_metrics(runner.trainer)
    if not values:
        return
    training, runner.log_buffer = runner.log_buffer, LogBuffer()
    runner.log_buffer.update(values)
    for hook, method in loggers:
        if is_family(hook, "LoggerHook"):
            method(runner)
    runner.log_buffer = training
