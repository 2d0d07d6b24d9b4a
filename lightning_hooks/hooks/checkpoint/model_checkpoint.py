"""Present a hook to Lightning as a ``ModelCheckpoint``, and export the weights of its files."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from lightning_hooks.hooks.checkpoint.best_fields import BestFields, Standing
from lightning_hooks.hooks.checkpoint.paths import directory_of
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.storage import earlier_files, files, torch_files, verification
from lightning_hooks.storage.checkpoint_io import (
    AtomicCheckpointIO,
    is_replaceable,
    wait_for_writer,
    writes_for,
)
from lightning_hooks.utils.fsdp import has_slices

__all__ = ["ModelCheckpointHook"]


class ModelCheckpointHook(BestFields, CheckpointWriter, ModelCheckpoint):  # type: ignore[misc,override]
    """A hook that Lightning accepts as a ``ModelCheckpoint``, also for ``ckpt_path``."""

    # without the events of a ModelCheckpoint
    on_train_start = Callback.on_train_start
    state_dict = Callback.state_dict
    load_state_dict = Callback.load_state_dict

    # further attributes of a ModelCheckpoint for readers
    filename = None
    verbose = False
    save_last: Any = None

    best: Any = None
    """The hook added by this hook to keep the best files; None without."""

    _best_path_override: str = ""
    _restore: Sequence[Callable[[], None]] = ()
    _warned = False

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Verify checkpoints when the Trainer reads them."""
        # only the first hook changes the strategy, so that its own parts are put back in the end
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

    # -- the weights of a file ---------------------------------------------------------------

    def export(
        self,
        path: str,
        model: torch.nn.Module | Callable[[L.LightningModule], torch.nn.Module] | None = None,
    ) -> None:
        """Write a checkpoint's ``state_dict`` alone, for ``load_state_dict`` and mmcv's loader.

        A ``CheckpointHook`` exports the last checkpoint, a ``BestCheckpointHook`` the best by the
        first key. The weights are the validated weights: an average, where a hook keeps an average.
        Without a checkpoint, the module's present weights are written. Rank 0 writes.

        With sharded parameters, all ranks must call this method. If the last checkpoint is a
        directory with a part of each rank, the module's weights are gathered instead; exporting the
        best checkpoint, or an average, is then refused.

        Args:
            path: A local path, or fsspec's.
            model: A function that picks a part of the fit's LightningModule, to export the
                checkpoint's weights of this part; by default the model of ``runner.model``. For a
                model, the present weights are written.

        Raises:
            RuntimeError: without a fit before, unless ``model`` is a model; for a damaged
                checkpoint.
            ValueError: for a checkpoint directory, for parameters flattened by FSDP (not FSDP2),
                for objects of other classes in the checkpoint, and for a function that returns no
                part of the module.
            FileNotFoundError: if the checkpoint is missing.
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
            self._require_present_weights(source)
            return self._export_present(path, chosen)
        if chosen is not module:
            self._require_whole(chosen)
        if self._background is not None and not files.exists(source):
            self._background.wait()
        if trainer.is_global_zero:
            weights = _part_of(_weights_in(source, trainer), module, chosen)
            torch_files.save_state_dict(weights, os.fspath(path))
        if trainer.strategy.restore_checkpoint_after_setup:  # a strategy with shards
            trainer.strategy.barrier("ModelCheckpointHook.export")
        return None

    exports_last = True
    """Whether ``export()`` takes the last checkpoint, else the best."""

    @property
    def exported_checkpoint(self) -> str:
        """The path of the checkpoint for ``export()``; an empty string before the first."""
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

    def _require_present_weights(self, path: str) -> None:
        """Raise unless a directory of shards holds the module's present weights."""
        hooks = self._runner.hooks
        averages = [type(hook).__name__ for hook in hooks if hasattr(hook, "ema_state_dict")]
        if self.exports_last and not averages:
            return
        own = f", or {averages[0]}.export() for the average of the last step" if averages else ""
        raise ValueError(
            f"export() cannot read {os.path.basename(path)}, a directory with a part of each rank: "
            "make a file of it with python -m lightning.pytorch.utilities.consolidate_checkpoint "
            f"{path}, or have one written (save_distributed_checkpoint=False, "
            f"state_dict_type='full'){own}"
        )

    # -- where files are -------------------------------------------------------------------

    @property
    def last_checkpoint(self) -> str:
        """The newest intact file, or an empty string.

        Before the first fit, the current directory is searched as the work directory.
        """
        return self.newest_in(self.last_directory()) or ""

    @property
    def dirpath(self) -> str:  # type: ignore[override]  # an attribute there
        """The directory of the files, by Lightning's name."""
        return self.last_directory()

    @property
    def _fs(self) -> Any:
        """The file system of ``to_yaml``."""
        return files.filesystem(self.dirpath)[0]

    @property
    def last_model_path(self) -> str:  # type: ignore[override]  # an attribute there
        """The path of the last file, by Lightning's name."""
        messages = self._messages()
        return messages.get("last_ckpt") or messages.get("best_ckpt") or ""

    @property
    def save_weights_only(self) -> bool:  # type: ignore[override]  # an attribute there
        """Whether the files are for loading weights only."""
        return not self.save_optimizer

    def best_source(self, hooks: Sequence[Any]) -> BestFields | None:
        """Return the hook whose best files this hook shows: its own, or the first with any.

        Args:
            hooks: The hooks of the Trainer.
        """
        found = (hook for hook in hooks if isinstance(hook, BestFields) and hook.save_best)
        return self.best or next(found, None)

    def standing(self) -> Standing:
        """Return the best files so far, by the first hook that keeps the best."""
        source = self.best_source(() if self._runner is None else self._runner.hooks)
        return Standing() if source is None else source.standing()

    @property
    def best_model_path(self) -> str:
        """The file for ``ckpt_path="best"``: the best by the first key, else the last.

        Before the first fit of a process, an empty string.
        """
        if self._best_path_override:
            return self._best_path_override
        if self._runner is None:
            return ""
        return super().best_model_path or self._messages().get("best_ckpt") or self.last_model_path

    @best_model_path.setter
    def best_model_path(self, path: str) -> None:
        self._best_path_override = path  # a launcher sets the path after a fit in another process

    def _messages(self) -> dict[str, Any]:
        meta = self._runner.meta if self._runner is not None else None
        found: dict[str, Any] = (meta or {}).get("hook_msgs") or {}
        return found

    filename_templates: Sequence[str] = ("epoch_{}.pth", "iter_{}.pth")
    """File names to look for in a directory without a manifest."""

    def newest_in(self, directory: str, *, for_fit: bool = False) -> str | None:
        """Return the newest intact file of a directory, None without any.

        Args:
            directory: The directory.
            for_fit: Whether to prefer files with the optimizer's state.
        """
        newest = earlier_files.newest_valid(directory, resumable=for_fit)
        if for_fit and newest is None:  # loading the file then raises with the reason
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
    """Verify a checkpoint on rank 0 before all ranks read the file; raise errors on all ranks."""
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


def _weights_in(path: str, trainer: L.Trainer) -> dict[str, Any]:
    """Return the ``state_dict`` of a checkpoint: the validated weights.

    Args:
        path: The file.
        trainer: The Trainer that wrote the file; its user's ``CheckpointIO`` also reads.

    Raises:
        FileNotFoundError: if the file is missing.
        DamagedCheckpointError: if the file is damaged.
        ValueError: if the file holds more than tensors and plain types.
    """
    strategy = trainer.strategy
    if not writes_for(strategy):
        wait_for_writer(strategy)
        return dict(strategy.checkpoint_io.load_checkpoint(path)["state_dict"])
    try:
        return dict(verification.load(path)["state_dict"])
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"export() reads {path} without executing anything in it, and there is more than "
            "tensors and plain types in it, such as hyperparameters of a class of yours; as the "
            f"file is your own, write torch.load({path!r}, weights_only=False)['state_dict']"
        ) from error


def _part_of(
    state: Mapping[str, Any], module: torch.nn.Module, model: torch.nn.Module
) -> dict[str, Any]:
    """Return the values of a part of a module, by the part's own keys.

    Args:
        state: The values, by the keys of the module's state dict.
        module: The module.
        model: A part of the module, found by shared tensors, else by name.

    Raises:
        ValueError: if the model is no part of the module.
    """
    if model is module:
        return dict(state)
    keys = {id(value): key for key, value in module.state_dict(keep_vars=True).items()}
    places = [name for name, part in module.named_modules() if part is model]
    own = model.state_dict(keep_vars=True)
    if not places and not any(id(value) in keys for value in own.values()):
        raise ValueError(
            f"export(model=...): the function has returned a {type(model).__name__} that is no "
            f"part of {type(module).__name__}, whose weights are in the checkpoint; give the "
            "model itself for its present weights"
        )
    prefix = f"{places[0]}." if places else ""
    found = {key: keys.get(id(value), prefix + key) for key, value in own.items()}
    return {key: state[source] for key, source in found.items() if source in state}
