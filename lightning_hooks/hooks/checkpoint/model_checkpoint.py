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

from lightning_hooks.engine.driver.collect import is_lightnings_default
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.hooks.checkpoint import exported
from lightning_hooks.hooks.checkpoint.best_fields import BestFields, Standing
from lightning_hooks.hooks.checkpoint.paths import directory_of
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.storage import earlier_files, files, torch_files, verification
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO, is_replaceable
from lightning_hooks.utils.fsdp import has_slices

__all__ = ["ModelCheckpointHook"]


class ModelCheckpointHook(BestFields, CheckpointWriter, ModelCheckpoint):  # type: ignore[misc,override]
    """A hook that Lightning accepts as its ``ModelCheckpoint``, also for ``ckpt_path``."""

    # not what a ModelCheckpoint does
    on_train_start = Callback.on_train_start
    state_dict = Callback.state_dict
    load_state_dict = Callback.load_state_dict

    # further attributes that others read from one
    filename = None
    verbose = False
    save_last: Any = None

    best: Any = None
    """The hook that keeps the best for this one, if it has one of its own."""

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
        """Keep the run."""
        super().before_run(runner)
        self._best_path_override = ""

    # -- the files --------------------------------------------------------------------------

    @property
    def last_checkpoint(self) -> str:
        """The newest file that is as it was written, or an empty string.

        Before the first fit the work directory is taken to be the current one.
        """
        return self.newest_in(self.last_directory()) or ""

    def export(
        self,
        path: str,
        model: torch.nn.Module | Callable[[L.LightningModule], torch.nn.Module] | None = None,
    ) -> None:
        """Write a checkpoint's ``state_dict`` alone, for ``load_state_dict`` and mmcv's loader.

        The checkpoint is the last one; a ``BestCheckpointHook``'s is its best by the first key.
        So these are the weights that were validated: an average, where a hook keeps one. Before
        there is a checkpoint they are the module's. Rank 0 writes.

        All ranks must call this where parameters are sharded. There the last checkpoint, if it is a
        directory with a part of each rank, stands for the module's weights, which are gathered; the
        best one, and an average, are refused.

        Args:
            path: A local path, or fsspec's.
            model: A function that picks a part of the LightningModule of the fit, whose weights in
                the checkpoint are written; by default what ``runner.model`` holds. Of a model
                itself the present weights are written.

        Raises:
            RuntimeError: if there has been no fit, and ``model`` is no model; if the checkpoint is
                not as it was written.
            ValueError: if the weights are in a directory, or FSDP (not FSDP2) has flattened the
                parameters; if there are objects of other classes in the checkpoint; if the function
                returns no part of the module.
            FileNotFoundError: if the checkpoint is not there any more.
        """
        if isinstance(model, torch.nn.Module):
            return self._export_present(path, model)
        if self._runner is None:
            raise RuntimeError("export() before a fit needs model=, a torch.nn.Module")
        runner = self._runner
        trainer, module = runner.trainer, runner.module
        chosen = unwrap(runner.model) if model is None else model(module)
        source = self.exported_checkpoint
        if not source:
            return self._export_present(path, chosen)
        if self._in_parts or os.path.isdir(source):
            exported.require_present_weights(source, self.exports_last, runner.hooks)
            return self._export_present(path, chosen)
        if chosen is not module:
            self._require_whole(chosen)
        if self._background is not None and not files.exists(source):
            self._background.wait()
        if trainer.is_global_zero:
            weights = exported.weights_in(source, trainer)
            weights = exported.part_of(weights, module, chosen)
            torch_files.save_state_dict(weights, os.fspath(path))
        if trainer.strategy.restore_checkpoint_after_setup:  # one with shards
            trainer.strategy.barrier("ModelCheckpointHook.export")
        return None

    exports_last = True
    """Whether ``export()`` writes the last checkpoint's weights, not the best one's."""

    @property
    def exported_checkpoint(self) -> str:
        """The path of the checkpoint whose weights ``export()`` writes; an empty string before."""
        return self._messages().get("last_ckpt") or ""

    def _export_present(self, path: str, model: torch.nn.Module) -> None:
        self._require_whole(model)
        torch_files.save_state_dict(model.state_dict(), os.fspath(path))

    def _require_whole(self, model: torch.nn.Module) -> None:
        trained = self._runner and self._runner.trainer.model
        if trained is not None and has_slices(trained, model.parameters()):
            raise ValueError(
                "export() cannot gather parameters that FSDP has flattened: call "
                "trainer.save_checkpoint(path, weights_only=True) on all ranks"
            )

    # -- where files are -------------------------------------------------------------------

    @property
    def dirpath(self) -> str:  # type: ignore[override]  # an attribute there
        """The directory, by Lightning's name."""
        return self.last_directory()

    @property
    def _fs(self) -> Any:
        """The file system that ``to_yaml`` writes to."""
        return files.filesystem(self.dirpath)[0]

    @property
    def last_model_path(self) -> str:  # type: ignore[override]  # an attribute there
        """The file last written, by Lightning's name."""
        messages = self._messages()
        return messages.get("last_ckpt") or messages.get("best_ckpt") or ""

    @property
    def save_weights_only(self) -> bool:  # type: ignore[override]  # an attribute there
        """Whether the files are for loading weights only."""
        return not self.save_optimizer

    def keeper_of_best(self, hooks: Sequence[Any]) -> BestFields | None:
        """Return the hook whose best files this one shows: its own, or the first that saves them.

        Args:
            hooks: The hooks of the Trainer.
        """
        found = (hook for hook in hooks if isinstance(hook, BestFields) and hook.save_best)
        return self.best or next(found, None)

    def standing(self) -> Standing:
        """Return the best so far, by the first hook that saves the best."""
        keeper = self.keeper_of_best(() if self._runner is None else self._runner.hooks)
        return Standing() if keeper is None else keeper.standing()

    @property
    def best_model_path(self) -> str:
        """The file for ``ckpt_path="best"``: the best by the first key, else the last.

        Before the first fit of a process it is an empty string.
        """
        if self._best_path_override:
            return self._best_path_override
        if self._runner is None:
            return ""
        return super().best_model_path or self._messages().get("best_ckpt") or self.last_model_path

    @best_model_path.setter
    def best_model_path(self, path: str) -> None:
        self._best_path_override = path  # a launcher sets it after a fit in another process

    def _messages(self) -> dict[str, Any]:
        meta = self._runner.meta if self._runner is not None else None
        found: dict[str, Any] = (meta or {}).get("hook_msgs") or {}
        return found

    filename_templates: Sequence[str] = ("epoch_{}.pth", "iter_{}.pth")
    """Names of files that are looked for where no manifest lists any."""

    def newest_in(self, directory: str, *, for_fit: bool = False) -> str | None:
        """Return the newest file of a directory that is as it was written, None without one.

        Args:
            directory: The directory.
            for_fit: Whether files of ``save_optimizer=False`` are passed over if there are others.
        """
        newest = earlier_files.newest_valid(directory, resumable=for_fit)
        if for_fit and newest is None:  # the error names the reason
            newest = earlier_files.newest_valid(directory)
        return newest or earlier_files.newest_unlisted(directory, self.filename_templates)

    def _find_last_checkpoints(self, trainer: L.Trainer) -> set[str]:
        """Return the file for ``ckpt_path="last"``, also before any fit."""
        directory = directory_of(self.out_dir, Driver.work_dir(trainer))
        newest = self.newest_in(directory, for_fit=trainer.state.fn == TrainerFn.FITTING)
        return {newest} if newest else set()

    def __getstate__(self) -> dict[str, Any]:
        of_fit = ("_restore", "_others")
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
