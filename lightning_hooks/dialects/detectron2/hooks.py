"""The hooks of detectron2, as in ``detectron2.engine.hooks``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lightning_hooks.dialects.steps import checkpoints, hooks
from lightning_hooks.dialects.steps.hooks import is_due
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "AutogradProfiler",
    "BestCheckpointer",
    "CallbackHook",
    "EvalHook",
    "HookBase",
    "IterationTimer",
    "LRScheduler",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "PreciseBN",
    "TorchMemoryStats",
    "TorchProfiler",
]


class HookBase(hooks.HookBase):
    """The base of detectron2's hooks: override any of the points.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    hook_dialect = "detectron2"

    def after_backward(self) -> None:
        """After each backward pass, before the optimizer's step."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for ``load_state_dict`` in a resumed run; an empty dict is not saved."""
        return {}


class IterationTimer(hooks.IterationTimer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PeriodicWriter`."""


class PeriodicCheckpointer(checkpoints.PeriodicCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.PeriodicCheckpointer`."""


class BestCheckpointer(checkpoints.BestCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.BestCheckpointer`."""


class LRScheduler(hooks.LRScheduler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.LRScheduler`."""


class AutogradProfiler(hooks.AutogradProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: Function without arguments; returns a dict of numbers, or nothing.
        eval_after_train: Whether to evaluate after the last iteration.
    """

    def __init__(
        self, eval_period: int, eval_function: Callable[[], Any], eval_after_train: bool = True
    ) -> None:
        super().__init__(eval_period, eval_function)
        self._eval_after_train = eval_after_train

    def after_train(self) -> None:
        """Evaluate the result of a complete run."""
        if self._eval_after_train:
            super().after_train()


class PreciseBN(hooks.PreciseBN, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


class TorchProfiler(hooks.StepProfiler, HookBase):
    """Profiles selected iterations with ``torch.profiler``, each into a file.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles the step.
        output_dir: Directory of the files: ``profiler-trace-iter{iteration}.json`` for Chrome's
            tracing page, or ``log/*.pt.trace.json`` for TensorBoard. On a GPU the slowest
            operations are listed in ``profiler-summary-iter{iteration}.txt``.
        activities: Profiled activities; by default the CPU, and the GPU if available.
        save_tensorboard: Whether the files are for TensorBoard.
    """

    def __init__(
        self,
        enable_predicate: Callable[[Any], bool],
        output_dir: str,
        *,
        activities: Sequence[Any] | None = None,
        save_tensorboard: bool = True,
    ) -> None:
        super().__init__(enable_predicate, output_dir)
        self._activities = activities
        self._save_tensorboard = save_tensorboard

    def _make_profiler(self) -> Any:
        on_trace_ready = None
        if self._save_tensorboard:
            on_trace_ready = torch.profiler.tensorboard_trace_handler(
                os.path.join(self._output_dir, "log"),
                worker_name=f"profiler-tensorboard-iter{self.trainer.iter}",
            )
        return torch.profiler.profile(
            activities=self._activities,
            on_trace_ready=on_trace_ready,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
            with_flops=True,
        )

    def _write(self, profiler: Any) -> None:
        if not self._save_tensorboard:
            super()._write(profiler)
        if torch.cuda.is_available():
            table = profiler.key_averages().table(sort_by="cuda_time_total")
            with open(self._path("profiler-summary-iter{}.txt"), "w", encoding="utf-8") as file:
                file.write(table)


_MIB = 2**20


class TorchMemoryStats(HookBase):
    """Logs the memory of the GPU at the end of the first periods; without a GPU, nothing.

    Args:
        period: Number of iterations between two lines.
        max_runs: Number of lines of a run; torch's memory summary follows the last line.
    """

    def __init__(self, period: int = 20, max_runs: int = 10) -> None:
        check_int("period", period, 1)
        check_int("max_runs", max_runs, 0)
        self._period = period
        self._max_runs = max_runs
        self._runs = 0

    def after_step(self) -> None:
        """Log the memory if the iteration ends a period or the run."""
        trainer = self.trainer
        if self._runs >= self._max_runs or not is_due(trainer.iter, self._period, trainer.max_iter):
            return
        if not torch.cuda.is_available():
            return
        self._runs += 1
        trainer.logger.info(
            " iter: %s  max_reserved_mem: %.0fMB  reserved_mem: %.0fMB  "
            "max_allocated_mem: %.0fMB  allocated_mem: %.0fMB ",
            trainer.iter,
            torch.cuda.max_memory_reserved() / _MIB,
            torch.cuda.memory_reserved() / _MIB,
            torch.cuda.max_memory_allocated() / _MIB,
            torch.cuda.memory_allocated() / _MIB,
        )
        if self._runs == self._max_runs:
            trainer.logger.info("\n%s", torch.cuda.memory_summary())
        torch.cuda.reset_peak_memory_stats()
