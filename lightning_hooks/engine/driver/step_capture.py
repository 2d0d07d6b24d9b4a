"""The result of each training step for the hooks, and the hooks that run inside the step.

A step's outputs as hooks see them, and what of them goes into the log buffer.
"""

from __future__ import annotations

from typing import Any

import torch

from lightning_hooks.engine.driver.calls import Calls
from lightning_hooks.engine.driver.ownership import Ownership, reads_step
from lightning_hooks.engine.lightning_api import logged_values, validation
from lightning_hooks.engine.lightning_api.method_patch import Listening
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.engine.runner.model_wrapper import StepOutputs, as_outputs
from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "TrainingStep",
    "bound_log_buffer",
    "detached",
    "feed_log_buffer",
    "log_validation",
    "orphaned",
    "whole",
]


class TrainingStep:
    """Gives hooks what the module's ``training_step`` returned; runs those that own backward.

    Without a hook that reads it nothing listens to the step, and it costs nothing.
    """

    def __init__(self, runner: Runner, calls: Calls, ownership: Ownership) -> None:
        self._runner, self._calls, self._ownership = runner, calls, ownership
        self._listening: Listening | None = None
        self._inside = False
        self.is_read = False
        """Whether there are hooks that want its result; those that own backward do."""

    def listen(self) -> None:
        """Listen to the step, if a hook has use for it; to be called when the hook list changes."""
        hooks = self._runner.hooks
        is_wanted = self._ownership.is_taken or any(reads_step(hook) for hook in hooks)
        if is_wanted and self._listening is None:
            self._listening = Listening(self._runner.module, "training_step", after=self._after)
        self.is_read = self._listening is not None or any(
            getattr(hook, "reads_log_buffer", False) for hook in hooks
        )

    def stop_listening(self) -> None:
        """Give the module its method back; doing it twice does no harm."""
        if self._listening is not None:
            self._listening.remove()
        self._listening, self.is_read = None, False

    def _after(self, outputs: Any) -> None:
        """Take the result; run the hooks that own backward on it."""
        runner, owners = self._runner, self._ownership.owners
        if self._inside or not logged_values.in_training_step(runner.module):
            return  # the learning rate finder's step, or one that a hook makes
        found = as_outputs(outputs)
        if not self._ownership.is_taken:
            runner.outputs = StepOutputs.of(runner, orphaned(found))
            return
        runner.outputs = StepOutputs.of(runner, self._ownership.with_strategy_loss(found))
        feed_log_buffer(runner, runner.outputs)
        calls = self._calls.at["after_train_iter"]
        calls = calls[: self._ownership.split(calls)]
        if "loss" not in found:  # a step without loss: nothing to run backward from
            calls = [(h, m) for h, m in calls if not any(h is owner for owner in owners)]
        self._inside = True
        try:
            event = self._calls.at_batch("after_train_iter", calls)
            event(runner.trainer, runner.module, getattr(runner, "data_batch", None), None)
        finally:
            self._inside = False
        runner.outputs = StepOutputs.of(runner, detached(runner.outputs))

    def collect(self, outputs: dict[str, Any], batch: Any) -> None:
        """Put the step's result into the log buffer, at the end of the batch.

        Args:
            outputs: What Lightning made of the step's result.
            batch: The batch.
        """
        runner = self._runner
        if self._listening is not None:
            feed_log_buffer(runner, getattr(runner, "outputs", {}))
        else:
            batches = runner.trainer.accumulate_grad_batches
            feed_log_buffer(runner, outputs if batches == 1 else whole(outputs, batches))


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
        values.update(logged_values.step_metrics(runner.trainer, runner.seen_metrics))
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
    values = validation.val_metrics(runner.trainer)
    if not values:
        return
    training, runner.log_buffer = runner.log_buffer, LogBuffer()
    runner.log_buffer.update(values)
    for hook, method in loggers:
        if is_family(hook, "LoggerHook"):
            method(runner)
    runner.log_buffer = training
