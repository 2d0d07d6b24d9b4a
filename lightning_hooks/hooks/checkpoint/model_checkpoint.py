"""Present a hook to Lightning as a ``ModelCheckpoint``, which finds its files and adds no other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.hooks.checkpoint.paths import directory_of
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.storage import manifest, torch_files, verification
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO, is_replaceable
from lightning_hooks.utils.fsdp import has_slices

__all__ = ["ModelCheckpointHook", "is_lightnings_default"]


class ModelCheckpointHook(CheckpointWriter, ModelCheckpoint):  # type: ignore[misc]  # every_n_epochs
    """A hook that Lightning accepts as its ``ModelCheckpoint``, also for ``ckpt_path``."""

    # not what a ModelCheckpoint does
    on_train_start = Callback.on_train_start
    state_dict = Callback.state_dict
    load_state_dict = Callback.load_state_dict

    # attributes that others read from one
    monitor = filename = current_score = best_model_score = None
    mode, save_top_k, save_weights_only, verbose = "min", -1, False, False
    save_last: Any = None
    kth_best_model_path = ""

    _runner: Any = None
    _best_path_override: str = ""
    _restore: Sequence[Callable[[], None]] = ()
    _warned = False

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Have the Trainer verify checkpoints when it reads them."""
        # by one of these hooks: with two, the first to restore would restore the other's
        strategy, own_io = trainer.strategy, trainer.strategy.checkpoint_io
        reads_itself = strategy.restore_checkpoint_after_setup
        if reads_itself and "load_checkpoint" not in vars(strategy):
            patch = MethodPatch(strategy, "load_checkpoint", partial(_verify, trainer))
            self._restore = (*self._restore, patch.remove)
        if is_replaceable(own_io) and getattr(own_io, "for_fit", None) is None:
            strategy.checkpoint_io = AtomicCheckpointIO(
                for_fit=lambda: trainer.state.fn == TrainerFn.FITTING
            )
            restore_io = partial(setattr, strategy, "checkpoint_io", own_io)
            self._restore = (*self._restore, restore_io)
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        beside = any(map(is_lightnings_default, callbacks))
        if self.hosted_at is not None and beside and not self._warned:
            self._warned = True
            warnings.warn(
                f"Lightning's default ModelCheckpoint runs beside the {type(self).__name__} in a "
                "HookAdapter and writes a second set of files; switch it off with "
                "Trainer(enable_checkpointing=False)",
                stacklevel=2,
            )

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Restore the Trainer's own reader."""
        self._restore_strategy()
        super().on_exception(trainer, pl_module, exception)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the Trainer's own reader."""
        self._restore_strategy()
        super().teardown(trainer, pl_module, stage)

    def _restore_strategy(self) -> None:
        for restore in self._restore:
            restore()
        self._restore = ()

    def before_run(self, runner: Any) -> None:
        """Keep the run: its files are looked for after it too."""
        self._runner = runner
        self._best_path_override = ""

    # -- the files --------------------------------------------------------------------------

    @property
    def last_checkpoint(self) -> str:
        """The newest file that is as it was written, or an empty string.

        Before the first fit the work directory is taken to be the current one.
        """
        return manifest.newest_valid(self.last_directory()) or ""

    def export(
        self,
        path: str,
        model: torch.nn.Module | Callable[[L.LightningModule], torch.nn.Module] | None = None,
    ) -> None:
        """Write the weights of the inner model alone, for ``load_state_dict`` and mmcv's loader.

        Sharded parameters are gathered: all ranks must call this then, and rank 0 writes.

        Args:
            path: A local path, or fsspec's.
            model: The model, or a function that picks it from the LightningModule of the fit; by
                default what ``runner.model`` holds.

        Raises:
            RuntimeError: if there has been no fit, and ``model`` is no model.
            ValueError: if FSDP (not FSDP2) has flattened the parameters.
        """
        if not isinstance(model, torch.nn.Module):
            if self._runner is None:
                raise RuntimeError("export() before a fit needs model=, a torch.nn.Module")
            runner = self._runner
            model = unwrap(runner.model) if model is None else model(runner.module)
        trained = self._runner and self._runner.trainer.model
        if trained is not None and has_slices(trained, model.parameters()):
            raise ValueError(
                "export() cannot gather parameters that FSDP has flattened: call "
                "trainer.save_checkpoint(path, weights_only=True) on all ranks"
            )
        torch_files.save_state_dict(model.state_dict(), os.fspath(path))

    # -- where files are -------------------------------------------------------------------

    def last_directory(self, work_dir: str | None = None) -> str:
        """Return the directory of the last fit's files; before any fit, that of the next.

        Args:
            work_dir: The work directory of the next fit; the current one by default.
        """
        if self._runner is not None:
            return self.directory(self._runner)
        work_dir = work_dir or "."
        absolute = work_dir if "://" in work_dir else os.path.abspath(work_dir)
        return directory_of(self.out_dir, absolute)

    @property
    def dirpath(self) -> str:  # type: ignore[override]  # an attribute there
        """The directory, by Lightning's name."""
        return self.last_directory()

    @property
    def last_model_path(self) -> str:  # type: ignore[override]  # an attribute there
        """The file last written, by Lightning's name."""
        messages = self._messages()
        return messages.get("last_ckpt") or messages.get("best_ckpt") or ""

    @property
    def best_model_path(self) -> str:
        """The file for ``ckpt_path="best"``: the run's best by the first key, else its last."""
        return self._best_path_override or self._messages().get("best_ckpt") or self.last_model_path

    @best_model_path.setter
    def best_model_path(self, path: str) -> None:
        self._best_path_override = path  # a launcher sets it after a fit in another process

    @property
    def best_k_models(self) -> dict[str, Any]:  # type: ignore[override]  # an attribute there
        """The scores of the best files by path, all keys together."""
        ranking = self._messages().get("best_ckpts") or {}
        return {path: score for ranked in ranking.values() for score, path in ranked}

    def _messages(self) -> dict[str, Any]:
        meta = self._runner.meta if self._runner is not None else None
        found: dict[str, Any] = (meta or {}).get("hook_msgs") or {}
        return found

    def _find_last_checkpoints(self, trainer: L.Trainer) -> set[str]:
        """Return the file for ``ckpt_path="last"``, also before any fit."""
        directory = directory_of(self.out_dir, Driver.work_dir(trainer))
        fitting = trainer.state.fn == TrainerFn.FITTING
        newest = manifest.newest_valid(directory, resumable=fitting)
        if fitting and newest is None:  # the error names the reason
            newest = manifest.newest_valid(directory)
        return {newest} if newest else set()

    def __getstate__(self) -> dict[str, Any]:
        of_fit = ("_runner", "_restore", "_others")
        return {k: v for k, v in super().__getstate__().items() if k not in of_fit}


def _verify(trainer: L.Trainer, path: Any, weights_only: bool | None = None) -> None:
    """Verify a checkpoint on rank 0 before all ranks read it; all raise its error."""
    found: Exception | None = None
    if trainer.is_global_zero:
        for_fit = trainer.state.fn == TrainerFn.FITTING
        try:
            verification.verify(os.fspath(path), for_fit, weights_only is not False)
        except Exception as error:
            found = error
    found = trainer.strategy.broadcast(found)
    if found is not None:
        raise found


def is_lightnings_default(callback: Callback) -> bool:
    """Return whether a callback is the one that Lightning adds by itself."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback.monitor is callback.filename is callback.save_last is None
