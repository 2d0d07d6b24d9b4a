"""The hooks of detectron2 and cvpods that save checkpoints."""

from __future__ import annotations

import math
from typing import Any

from lightning_hooks.dialects.steps.base import is_due
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_int

__all__ = ["BestCheckpointer", "PeriodicCheckpointer"]


class PeriodicCheckpointer:
    """Saves checkpoints every period, and a last one at the end.

    The names are ``{file_prefix}_{iteration:07d}`` and ``{file_prefix}_final``; each file contains
    ``iteration``.

    Args:
        checkpointer: A :class:`~lightning_hooks.dialects.steps.checkpointer.Checkpointer`, or an
            object with ``save(name, **kwargs)``, and ``get_checkpoint_file()`` if
            ``max_to_keep`` is given.
        period: Number of iterations between two files.
        max_iter: Number of iterations of the run; the Trainer's by default.
        max_to_keep: Number of files that are kept, besides the last one; all by default.
        file_prefix: Prefix of the names.
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
        _check_checkpointer(checkpointer)
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
        """Read the number of iterations of the run."""
        self.max_iter = self.trainer.max_iter

    def after_step(self) -> None:
        """Save if the iteration ends a period, or is the last one."""
        self.step(self.trainer.iter)

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Save if an iteration ends a period, or is the last one; for loops without a Trainer.

        Args:
            iteration: Number of the finished iteration, from 0.
            kwargs: Further entries of the file.
        """
        extra = {"iteration": iteration, **kwargs}
        if (iteration + 1) % self.period == 0:
            self.checkpointer.save(self.name(iteration), **extra)
            if self.max_to_keep is not None:
                self._remove_oldest(self.checkpointer.get_checkpoint_file(), self.max_to_keep)
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.checkpointer.save(f"{self.file_prefix}_final", **extra)

    def name(self, iteration: int) -> str:
        """Return the name of an iteration's file."""
        return f"{self.file_prefix}_{iteration:07d}"

    def _remove_oldest(self, newest: str, keep: int) -> None:
        self.recent_checkpoints.append(newest)
        while len(self.recent_checkpoints) > keep:
            oldest = self.recent_checkpoints.pop(0)
            if not oldest.endswith(f"{self.file_prefix}_final.pth"):
                files.remove(oldest)

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now."""
        self.checkpointer.save(name, **kwargs)


class BestCheckpointer:
    """Saves a checkpoint when a scalar of the storage is the best so far.

    The scalar is read every period and after the last iteration: list the hook after the
    ``EvalHook`` that stores the scalar, with the same period. The file contains ``iteration``.

    A value that is not finite is never the best. If the scalar is missing, a warning is logged.

    Args:
        eval_period: Number of iterations between two readings; 0: only at the end.
        checkpointer: Same as that of ``PeriodicCheckpointer``.
        val_metric: Name of the scalar, as ``bbox/AP``.
        mode: ``max`` or ``min``: whether the largest or the smallest value is the best.
        file_prefix: Name of the file.
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
        _check_checkpointer(checkpointer)
        if mode not in ("max", "min"):
            raise ValueError(f'mode must be "max" or "min", got {mode!r}')
        check_int("eval_period", eval_period, 0)
        self._period = eval_period
        self.checkpointer, self.val_metric, self.file_prefix = checkpointer, val_metric, file_prefix
        self._sign = 1 if mode == "max" else -1
        self.best_metric: float | None = None
        self.best_iter: int | None = None

    def after_step(self) -> None:
        """Compare the scalar if the iteration ends a period."""
        done, max_iter = self.trainer.iter, self.trainer.max_iter
        if is_due(done, self._period, None) and done + 1 != max_iter:
            self._save_if_best()

    def after_train(self) -> None:
        """Compare the scalar after a complete run."""
        max_iter = self.trainer.max_iter
        if max_iter is None or self.trainer.iter + 1 >= max_iter:
            self._save_if_best()

    def _save_if_best(self) -> None:
        entry = self.trainer.storage.latest_values().get(self.val_metric)
        if entry is None:
            self.trainer.logger.warning(
                "%s: no scalar %r has been put; nothing is saved",
                *(type(self).__name__, self.val_metric),
            )
            return
        value, iteration = entry
        is_better = self.best_metric is None or self._sign * (value - self.best_metric) > 0
        if math.isfinite(value) and is_better:
            self.best_metric, self.best_iter = value, iteration
            self.checkpointer.save(self.file_prefix, iteration=iteration)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and its iteration, if there is one."""
        if self.best_metric is None:
            return {}
        return {"best_metric": self.best_metric, "best_iter": self.best_iter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value and its iteration."""
        self.best_metric, self.best_iter = state_dict["best_metric"], state_dict["best_iter"]


def _check_checkpointer(checkpointer: Any) -> None:
    if not callable(getattr(checkpointer, "save", None)):
        raise TypeError(f"checkpointer must have save(name), got {checkpointer!r}")
