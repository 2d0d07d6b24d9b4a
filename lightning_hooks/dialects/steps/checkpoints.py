"""``Checkpointer`` of detectron2 and cvpods, and the hooks that save checkpoints."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.dialects.steps.hooks import is_due, is_first_rank
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.storage import files, torch_files
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "BestCheckpointer",
    "Checkpointer",
    "PeriodicCheckpointer",
]

_LAST = "last_checkpoint"


class Checkpointer:
    """Saves a model and other objects to ``{save_dir}/{name}.pth``, and loads them.

    A file contains ``model``, the state of each of ``checkpointables`` by name, and the keywords of
    ``save``. ``last_checkpoint`` in the same directory names the newest file. A file replaces
    an older file only when complete.

    Args:
        model: The model; a wrapper such as DistributedDataParallel is removed.
        save_dir: Directory of the files; if empty, nothing is saved.
        save_to_disk: Whether this process saves; by default only rank 0 does.
        checkpointables: Objects with ``state_dict()`` and ``load_state_dict()``.

    Raises:
        TypeError: for a checkpointable without ``state_dict()``.

    Source: fvcore's ``Checkpointer``; the files are in its format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpointer = Checkpointer(torch.nn.Linear(1, 1), folder)
    ...     checkpointer.save("model_final", iteration=5)
    ...     checkpointer.resume_or_load("")
    {'iteration': 5}
    """

    def __init__(
        self,
        model: torch.nn.Module,
        save_dir: str = "",
        *,
        save_to_disk: bool | None = None,
        **checkpointables: Any,
    ) -> None:
        self.model = unwrap(model)
        self.save_dir = os.fspath(save_dir)
        self.save_to_disk = save_to_disk
        self.checkpointables: dict[str, Any] = {}
        for key, checkpointable in checkpointables.items():
            self.add_checkpointable(key, checkpointable)

    def add_checkpointable(self, key: str, checkpointable: Any) -> None:
        """Add an object to save.

        Raises:
            KeyError: for a name already in use.
        """
        if key in self.checkpointables:
            raise KeyError(f"a checkpointable {key!r} exists already")
        if not callable(getattr(checkpointable, "state_dict", None)):
            raise TypeError(f"{key} must have state_dict(), got {checkpointable!r}")
        self.checkpointables[key] = checkpointable

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now, with ``kwargs`` as further entries of the file."""
        saves = is_first_rank() if self.save_to_disk is None else self.save_to_disk
        if not self.save_dir or not saves:
            return
        state: dict[str, Any] = {"model": torch_files.to_cpu(self.model.state_dict())}
        state.update({key: entry.state_dict() for key, entry in self.checkpointables.items()})
        torch_files.save_torch({**state, **kwargs}, files.join(self.save_dir, f"{name}.pth"))
        self.tag_last_checkpoint(f"{name}.pth")

    def load(self, path: str, checkpointables: Sequence[str] | None = None) -> dict[str, Any]:
        """Load a file into the model and the checkpointables; return its other entries.

        Args:
            path: Path of the file; if empty, nothing is loaded.
            checkpointables: Names of the checkpointables to load; all by default.
        """
        if not path:
            return {}
        state: dict[str, Any] = torch_files.load_torch(path)
        self.model.load_state_dict(state.pop("model"), strict=False)
        for key in self.checkpointables if checkpointables is None else checkpointables:
            if key in state:
                self.checkpointables[key].load_state_dict(state.pop(key))
        return state

    def resume_or_load(self, path: str, *, resume: bool = True) -> dict[str, Any]:
        """Load all objects from the newest file; if none exists, the weights of ``path``."""
        if resume and self.has_checkpoint():
            return self.load(self.get_checkpoint_file())
        return self.load(path, checkpointables=[])

    def has_checkpoint(self) -> bool:
        """Return whether the directory has a newest file."""
        return files.exists(files.join(self.save_dir, _LAST))

    def get_checkpoint_file(self) -> str:
        """Return the path of the newest file, or an empty string."""
        if not self.has_checkpoint():
            return ""
        system, path = files.filesystem(files.join(self.save_dir, _LAST))
        return files.join(self.save_dir, system.cat_file(path).decode().strip())

    def get_all_checkpoint_files(self) -> list[str]:
        """Return the paths of all files in the directory."""
        system, path = files.filesystem(self.save_dir)
        names = sorted(os.path.basename(file) for file in system.ls(path, detail=False))
        return [files.join(self.save_dir, name) for name in names if name.endswith(".pth")]

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Write the name of the newest file to ``last_checkpoint``."""
        files.write_bytes(files.join(self.save_dir, _LAST), last_filename_basename.encode())


class PeriodicCheckpointer:
    """Saves a checkpoint every period, and after the last iteration.

    The names are ``{file_prefix}_{iteration:07d}`` and ``{file_prefix}_final``; each file contains
    ``iteration``.

    Args:
        checkpointer: A :class:`~lightning_hooks.dialects.steps.checkpoints.Checkpointer`, or an
            object with ``save(name, **kwargs)``, and ``get_checkpoint_file()`` for
            ``max_to_keep``.
        period: Number of iterations between two files.
        max_iter: Number of iterations of the run; the Trainer's by default.
        max_to_keep: Number of files kept besides the final file; all by default.
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
        check_int("period", period, 1)
        if max_to_keep is not None:
            check_int("max_to_keep", max_to_keep, 1)
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
        """Save if the iteration ends a period or the run."""
        self.step(self.trainer.iter)

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Save if an iteration ends a period or the run; for loops without a Trainer.

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
    """Saves a checkpoint when a scalar of the storage reaches a new best value.

    The scalar is read every period and after the last iteration: list the hook after the
    ``EvalHook`` of the scalar, with the same period. The file contains ``iteration``.

    Infinite and NaN values are ignored. If the scalar is missing, a warning is logged.

    Args:
        eval_period: Number of iterations between two readings; 0: only at the end.
        checkpointer: Same as for ``PeriodicCheckpointer``.
        val_metric: Name of the scalar, as ``bbox/AP``.
        mode: ``max`` if the largest value is the best, ``min`` if the smallest.
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
        """Return the best value and its iteration; empty before the first reading."""
        if self.best_metric is None:
            return {}
        return {"best_metric": self.best_metric, "best_iter": self.best_iter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value and its iteration."""
        self.best_metric, self.best_iter = state_dict["best_metric"], state_dict["best_iter"]


def _check_checkpointer(checkpointer: Any) -> None:
    if not callable(getattr(checkpointer, "save", None)):
        raise TypeError(f"checkpointer must have save(name), got {checkpointer!r}")
