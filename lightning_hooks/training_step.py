"""The result of each training step for the hooks, and the hooks that run inside the step."""

from __future__ import annotations

from typing import Any

from lightning_hooks import loops
from lightning_hooks.calls import Calls
from lightning_hooks.listening import Listening
from lightning_hooks.model import as_outputs
from lightning_hooks.outputs import StepOutputs
from lightning_hooks.ownership import Ownership, reads_step
from lightning_hooks.runner import Runner
from lightning_hooks.step_log import detached, feed_log_buffer, orphaned, whole

__all__ = ["TrainingStep"]


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
        if self._inside or not loops.in_training_step(runner.module):
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
