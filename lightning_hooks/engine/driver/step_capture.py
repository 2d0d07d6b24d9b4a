"""Capture the results of training steps and epochs for hooks, the log buffer and loggers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from lightning_hooks.engine.driver.ownership import (
    OPTIMIZER_HOOKS,
    Call,
    Ownership,
    runs_no_user_code,
)
from lightning_hooks.engine.driver.point_dispatcher import PointDispatcher
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.hosted import HostedHook, class_name, is_one_of
from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.priority import is_family, loggers_of
from lightning_hooks.engine.runner import metrics
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.engine.runner.model_wrapper import StepOutputs, as_outputs, log_vars_of
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["StepCapture", "trim_log_buffer"]


class StepCapture:
    """Give hooks the result of ``training_step``; run hooks that own backward inside the step.

    After an epoch the loggers write the module's values. A method of the module is patched only if
    a hook reads the results.
    """

    def __init__(
        self, runner: Runner, calls: PointDispatcher, ownership: Ownership, fit: FitChanges
    ) -> None:
        self._runner, self._calls, self._ownership, self._fit = runner, calls, ownership, fit
        self._is_patched = self._seeks_loss = self._watches_steps = self._logs_epochs = False
        self._inside = False
        self._warned = False
        self._logged = logged_values.step_results(runner.trainer)
        self._seen: dict[str, torch.Tensor] = {}  # the module's logged values of earlier steps
        self.fills_log_buffer = False
        """Whether a hook reads the step's values in the log buffer when the batch ends."""
        self.lost: frozenset[str] | None = frozenset()
        """The values of the present epoch that lack the batches before a resume; None: all."""

    def patch(self) -> None:
        """Patch what the hooks read; call again when the list of hooks changes."""
        hooks, owned = self._runner.hooks, self._ownership.is_taken
        if not self._is_patched and (owned or any(_reads_step(hook) for hook in hooks)):
            self._is_patched = True
            self._fit.patch(self._runner.module, "training_step", after=self._after)
        reads_buffer = bool(natives_with("_reads_log_buffer", hooks))
        self.fills_log_buffer = not owned and (self._is_patched or reads_buffer)
        if reads_buffer and not self._watches_steps:
            self._watches_steps = True
            self._runner.step_rates.watch(self._fit)
        if (self.fills_log_buffer or owned) and not self._seeks_loss:
            self._seeks_loss = True
            names_loss = partial(setattr, self._runner.train_log, "loss_names")
            logged_values.LossNames(self._runner.module, names_loss, self._fit)
        # the ranks compute metrics together, and some of them may have no logger
        has_logger = self._runner.world_size > 1 or natives_with("_log_values", hooks)
        if has_logger and not self._logs_epochs:
            self._logs_epochs = True
            self._fit.patch(self._runner.module, "on_train_epoch_end", after=self._log_epoch)

    def _log_epoch(self, result: Any) -> None:
        """Have the loggers write the values of the epoch, after the module's own hook."""
        runner, epoch = self._runner, self._runner.trainer.current_epoch
        values = logged_values.epoch_values(runner.trainer)
        metrics.log_values(runner, "train_epoch", values)
        lost = [name for name in values if self.lost is None or name in self.lost]
        self.lost = frozenset()
        if lost:
            runner.logger.warning(
                "%s of epoch %d: of the batches since the resume, the file has no values of the "
                "batches before",
                *(", ".join(lost), epoch + 1),
            )

    def _after(self, outputs: Any) -> None:
        """Put the result on the runner; run the hooks that own backward."""
        runner, ownership = self._runner, self._ownership
        if self._inside or not logged_values.in_training_step(runner.module):
            return  # a step of the learning rate finder, or called by a hook
        result = as_outputs(outputs)
        if not ownership.is_taken:
            runner.outputs = StepOutputs.of(runner, _without_backward(result))
            return
        runner.outputs = StepOutputs.of(runner, ownership.with_strategy_loss(result))
        self._feed_log_buffer(runner.outputs)
        calls, _ = ownership.inside_and_after_step(self._calls.calls_for("after_train_iter"))
        if outputs is None:
            calls = self._without_steppers(calls)
            runner.step_counts.note_no_loss()
        self._inside = True
        try:
            self._calls.run("after_train_iter", calls)
        finally:
            self._inside = False
        detached = {
            key: value.detach() if isinstance(value, torch.Tensor) else value
            for key, value in runner.outputs.items()
        }
        runner.outputs = StepOutputs.of(runner, detached)

    def _without_steppers(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Leave out hooks that run backward and step, after a ``training_step`` that returned None.

        A warning names the left-out hooks once. A hook that accumulates gradients is still called:
        the batch may be the last of an accumulated step. After a step that returns a dict without
        a loss all hooks are called, and a hook that needs the loss raises an error.
        """
        skipped = [
            hook
            for hook, method in calls
            if self._steps(hook) and not getattr(method, "takes_none", False)
        ]
        if skipped and not self._warned:
            self._warned = True
            names = [f"{class_name(hook)}: {_step_point(hook)}" for hook in skipped]
            rank_zero_warn(
                f"{', '.join(names)} is not called where training_step returns None, which skips "
                "the step; to train with it, end training_step with `return loss`"
            )
        return [call for call in calls if not is_one_of(call[0], skipped)]

    def _warn_of_none(self) -> None:
        self._warned = True
        runner = self._runner
        if runner.module.automatic_optimization:  # else the module trains in the step itself
            rank_zero_warn(
                f"`training_step` returned `None` in iteration {runner.inner_iter + 1} of epoch "
                f"{runner.epoch + 1}: it trains nothing, and the log has no loss of it; to train "
                "with it, end training_step with `return loss`"
            )

    def _steps(self, hook: Any) -> bool:
        hosted = isinstance(hook, HostedHook) and hook._owns_backward(self._runner.module)
        return hosted or is_family(hook, *OPTIMIZER_HOOKS)

    def fill_log_buffer(self, outputs: dict[str, Any]) -> None:
        """Put the step's result into the log buffer, at the end of the batch.

        Args:
            outputs: Lightning's form of the step's result.
        """
        runner = self._runner
        if not outputs and not self._warned:
            self._warn_of_none()
        if self._is_patched:
            self._feed_log_buffer(getattr(runner, "outputs", {}))
        else:
            batches = runner.trainer.accumulate_grad_batches
            if batches > 1 and outputs.get("loss") is not None:  # Lightning has divided the loss
                outputs = {**outputs, "loss": outputs["loss"] * batches}
            self._feed_log_buffer(outputs)

    def _feed_log_buffer(self, outputs: dict[str, Any]) -> None:
        """Add the ``log_vars``, else the loss and the module's logged values."""
        runner = self._runner
        values = log_vars_of(outputs) if "log_vars" in outputs else None
        if values is None:
            values, loss = {}, outputs.get("loss")
            if loss is not None:
                values["loss"] = loss if type(loss) is torch.Tensor else _plain(loss)
            if self._logged:  # most modules log nothing, and this runs in every step
                values.update(logged_values.step_metrics(runner.trainer, self._seen))
        runner.log_buffer.update(values, outputs.get("num_samples", 1))


def _reads_step(hook: object) -> bool:
    """Whether a hook may read ``runner.outputs`` or the log buffer.

    A class with ``_reads_step = False`` does not. For a class of this package the declaration holds
    for the class alone, not for a user's subclass.
    """
    for base in type(hook).__mro__:
        if "_reads_step" in vars(base):
            is_subclass = not runs_no_user_code(hook) and is_ours(base)
            return bool(vars(base)["_reads_step"]) or is_subclass
    return True


def _step_point(hook: Any) -> str:
    return hook.step_point if isinstance(hook, HostedHook) else "after_train_iter"


def _without_backward(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return a step's outputs with losses that refuse ``backward``: Lightning runs backward."""
    return {
        key: OrphanLoss.of(value)
        if isinstance(value, torch.Tensor) and (value.requires_grad or key == "loss")
        else value
        for key, value in outputs.items()
    }


def _plain(loss: Any) -> Any:
    plain = getattr(loss, "plain", None)  # absent on a loss computed by a hook
    if plain is None and isinstance(loss, torch.Tensor):
        return loss.as_subclass(torch.Tensor)
    return loss if plain is None else plain


def trim_log_buffer(runner: Runner) -> None:
    """Drop old values from the log buffer if no logger clears the buffer."""
    if not loggers_of(runner.hooks):
        runner.log_buffer.trim(10_000)
