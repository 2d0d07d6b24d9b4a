"""Hooks of detectron2 and cvpods that leave files: checkpoints and profiler traces."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import torch

from lightning_hooks.dialects.steps.hooks import at_least, is_due
from lightning_hooks.storage import files

__all__ = ["AutogradProfiler", "BestCheckpointer", "PeriodicCheckpointer"]


class PeriodicCheckpointer:
    """Has a checkpointer save every so many iterations, and a last file at the end.

    The names are ``{file_prefix}_{iteration:07d}`` and ``{file_prefix}_final``; each file gets
    ``iteration``.

    Args:
        checkpointer: A :class:`~lightning_hooks.dialects.steps.checkpointer.Checkpointer`, or an
            object with ``save(name, **kwargs)``, and ``get_checkpoint_file()`` where
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
        _needs_save(checkpointer)
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
            self.checkpointer.save(self.name(iteration), **extra)
            if self.max_to_keep is not None:
                self._forget(self.checkpointer.get_checkpoint_file(), self.max_to_keep)
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.checkpointer.save(f"{self.file_prefix}_final", **extra)

    def name(self, iteration: int) -> str:
        """The name of an iteration's file."""
        return f"{self.file_prefix}_{iteration:07d}"

    def _forget(self, newest: str, keep: int) -> None:
        self.recent_checkpoints.append(newest)
        while len(self.recent_checkpoints) > keep:
            oldest = self.recent_checkpoints.pop(0)
            final = oldest.endswith(f"{self.file_prefix}_final.pth")
            if not final:
                files.remove(oldest)

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now."""
        self.checkpointer.save(name, **kwargs)


class BestCheckpointer:
    """Has a checkpointer save where a value in the storage is the best so far.

    It looks every so many iterations and after the last one: it belongs behind the ``EvalHook``
    that puts the value there, with its period. The file gets ``iteration``.

    Args:
        eval_period: Iterations from one look to the next; 0: only at the end.
        checkpointer: As that of ``PeriodicCheckpointer``.
        val_metric: The value's name, as ``bbox/AP``.
        mode: ``max`` or ``min``: which value is the best.
        file_prefix: The file's name.

    A value that is not finite is never the best; where there
    is none at all, a warning says so.
    """

    trainer: Any

    def __init__(
        self,
        eval_period: int,
        checkpointer: Any,
        val_metric: str,
        mode: str = "max",
        file_prefix: str = "model_best",
    ) -> None:
        _needs_save(checkpointer)
        if mode not in ("max", "min"):
            raise ValueError(f'mode must be "max" or "min", got {mode!r}')
        self._period = at_least("eval_period", eval_period, 0)
        self.checkpointer, self.val_metric, self.file_prefix = checkpointer, val_metric, file_prefix
        self._sign = 1 if mode == "max" else -1
        self.best_metric: float | None = None
        self.best_iter: int | None = None

    def after_step(self) -> None:
        """Look if it is time to."""
        done, max_iter = self.trainer.iter, self.trainer.max_iter
        if is_due(done, self._period, None) and done + 1 != max_iter:
            self._look()

    def after_train(self) -> None:
        """Look at what a complete run has made."""
        max_iter = self.trainer.max_iter
        if max_iter is None or self.trainer.iter + 1 >= max_iter:
            self._look()

    def _look(self) -> None:
        found = self.trainer.storage.latest_values().get(self.val_metric)
        if found is None:
            self.trainer.logger.warning(
                "%s: no scalar %r has been put; nothing is saved",
                *(type(self).__name__, self.val_metric),
            )
            return
        value, when = found
        is_better = self.best_metric is None or self._sign * (value - self.best_metric) > 0
        if math.isfinite(value) and is_better:
            self.best_metric, self.best_iter = value, when
            self.checkpointer.save(self.file_prefix, iteration=when)

    def state_dict(self) -> dict[str, Any]:
        """The best so far."""
        known = self.best_metric is not None
        return {"best_metric": self.best_metric, "best_iter": self.best_iter} if known else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best so far."""
        self.best_metric, self.best_iter = state_dict["best_metric"], state_dict["best_iter"]


def _needs_save(checkpointer: Any) -> None:
    if not callable(getattr(checkpointer, "save", None)):
        raise TypeError(f"checkpointer must have save(name), got {checkpointer!r}")


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
