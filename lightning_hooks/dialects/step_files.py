"""Hooks of detectron2 and cvpods that leave files: checkpoints and profiler traces."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["AutogradProfiler", "PeriodicCheckpointer"]


class PeriodicCheckpointer:
    """Has a checkpointer save every so many iterations, and a last file at the end.

    The names are ``{file_prefix}_{iteration:07d}`` and ``{file_prefix}_final``; each file gets
    ``iteration``.

    Args:
        checkpointer: An object with ``save(name, **kwargs)``, and ``get_checkpoint_file()`` where
            ``max_to_keep`` is given.
        period: Iterations from one file to the next.
        max_iter: When the last one is; the Trainer's by default.
        max_to_keep: How many files there may be; all by default, and the last one apart.
        file_prefix: How the names begin.
    """

    trainer: Any

    def __init__(
        self,
        checkpointer: Any,
        period: int,
        max_iter: int | None = None,
        max_to_keep: int | None = None,
        file_prefix: str = "model",
    ) -> None:
        if not callable(getattr(checkpointer, "save", None)):
            raise TypeError(f"checkpointer must have save(name), got {checkpointer!r}")
        if not isinstance(period, int) or period < 1:
            raise ValueError(f"period must be an int of at least 1, got {period!r}")
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError(f"max_to_keep must be at least 1, or None, got {max_to_keep!r}")
        self.checkpointer = checkpointer
        self.period = period
        self.max_iter = max_iter
        self.max_to_keep = max_to_keep
        self.file_prefix = file_prefix
        self.recent_checkpoints: list[str] = []

    def before_train(self) -> None:
        """Learn when the run ends."""
        self.max_iter = self.trainer.max_iter

    def after_step(self) -> None:
        """Save if it is time to."""
        self.step(self.trainer.iter)

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Save if it is time to, in a loop of one's own.

        Args:
            iteration: The iteration that is done, from 0.
            kwargs: Saved too.
        """
        extra = {"iteration": iteration, **kwargs}
        if (iteration + 1) % self.period == 0:
            self.checkpointer.save(f"{self.file_prefix}_{iteration:07d}", **extra)
            if self.max_to_keep is not None:
                self._forget(self.checkpointer.get_checkpoint_file(), self.max_to_keep)
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.checkpointer.save(f"{self.file_prefix}_final", **extra)

    def _forget(self, newest: str, keep: int) -> None:
        self.recent_checkpoints.append(newest)
        while len(self.recent_checkpoints) > keep:
            oldest = self.recent_checkpoints.pop(0)
            final = oldest.endswith(f"{self.file_prefix}_final.pth")
            if os.path.isfile(oldest) and not final:
                os.remove(oldest)

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now."""
        self.checkpointer.save(name, **kwargs)


class AutogradProfiler:
    """Profiles the iterations that a function picks, each into a file for Chrome's tracing page.

    Args:
        enable_predicate: Called with the trainer before each step.
        output_dir: Where ``profiler-trace-iter{iteration}.json`` is written.
        use_cuda: Whether the GPU is profiled too, where there is one.
    """

    trainer: Any

    def __init__(
        self,
        enable_predicate: Callable[[Any], bool],
        output_dir: str,
        *,
        use_cuda: bool = True,
    ) -> None:
        if not callable(enable_predicate):
            raise TypeError(
                f"enable_predicate must be a function of the trainer, got {enable_predicate!r}"
            )
        self._wanted = enable_predicate
        self._output_dir = output_dir
        self._use_cuda = use_cuda
        self._profiler: Any = None

    def before_step(self) -> None:
        """Start the profiler if this step is wanted."""
        if self._wanted(self.trainer):
            device = "cuda" if self._use_cuda and torch.cuda.is_available() else None
            self._profiler = torch.autograd.profiler.profile(use_device=device)
            self._profiler.__enter__()

    def after_step(self) -> None:
        """Stop it, and write the file."""
        profiler = self._stop()
        if profiler is not None:
            os.makedirs(self._output_dir, exist_ok=True)
            name = f"profiler-trace-iter{self.trainer.iter}.json"
            profiler.export_chrome_trace(os.path.join(self._output_dir, name))

    def after_train(self) -> None:
        """Stop it in a step that has failed."""
        self._stop()

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.__exit__(None, None, None)
        return profiler
