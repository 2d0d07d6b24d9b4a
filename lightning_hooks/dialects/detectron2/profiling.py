"""The hooks of detectron2 that measure time and memory with torch's tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lightning_hooks.dialects.steps.base import is_due
from lightning_hooks.utils.arguments import check_int

__all__ = ["TorchMemoryStats", "TorchProfiler"]

_MIB = 2**20


class TorchProfiler:
    """Profiles selected iterations with ``torch.profiler``, each into a file.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles it.
        output_dir: Directory of the files: ``profiler-trace-iter{iteration}.json`` for Chrome's
            tracing page, or ``log/*.pt.trace.json`` for TensorBoard. On a GPU the operations that
            take most time are in ``profiler-summary-iter{iteration}.txt``.
        activities: What is profiled; CPU, and the GPU where there is one, by default.
        save_tensorboard: Whether the files are TensorBoard's.
    """

    trainer: Any

    def __init__(
        self,
        enable_predicate: Callable[[Any], bool],
        output_dir: str,
        *,
        activities: Sequence[Any] | None = None,
        save_tensorboard: bool = True,
    ) -> None:
        if not callable(enable_predicate):
            raise TypeError(
                f"enable_predicate must be a function of the trainer, got {enable_predicate!r}"
            )
        self._is_enabled = enable_predicate
        self._output_dir = os.fspath(output_dir)
        self._activities = activities
        self._save_tensorboard = save_tensorboard
        self._profiler: Any = None

    def before_step(self) -> None:
        """Start the profiler if the function selects this step."""
        if not self._is_enabled(self.trainer):
            return
        on_trace_ready = None
        if self._save_tensorboard:
            on_trace_ready = torch.profiler.tensorboard_trace_handler(
                os.path.join(self._output_dir, "log"),
                worker_name=f"profiler-tensorboard-iter{self.trainer.iter}",
            )
        self._profiler = torch.profiler.profile(
            activities=self._activities,
            on_trace_ready=on_trace_ready,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
            with_flops=True,
        )
        self._profiler.__enter__()

    def after_step(self) -> None:
        """Stop the profiler, and write the files."""
        profiler = self._stop()
        if profiler is None:
            return
        os.makedirs(self._output_dir, exist_ok=True)
        if not self._save_tensorboard:
            profiler.export_chrome_trace(self._path("profiler-trace-iter{}.json"))
        if torch.cuda.is_available():
            table = profiler.key_averages().table(sort_by="cuda_time_total")
            with open(self._path("profiler-summary-iter{}.txt"), "w", encoding="utf-8") as file:
                file.write(table)

    def after_train(self) -> None:
        """Stop the profiler of a step that has failed."""
        self._stop()

    def _path(self, name: str) -> str:
        return os.path.join(self._output_dir, name.format(self.trainer.iter))

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.__exit__(None, None, None)
        return profiler


class TorchMemoryStats:
    """Logs the memory of the GPU at the end of some periods; without a GPU it does nothing.

    Args:
        period: Number of iterations between two lines.
        max_runs: Number of lines of a run; the last one has torch's summary.
    """

    trainer: Any

    def __init__(self, period: int = 20, max_runs: int = 10) -> None:
        check_int("period", period, 1)
        check_int("max_runs", max_runs, 0)
        self._period = period
        self._max_runs = max_runs
        self._runs = 0

    def after_step(self) -> None:
        """Log the memory if the iteration ends a period or is the last one."""
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
