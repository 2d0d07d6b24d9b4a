"""Show a hook with checkpoints to Lightning: ``SavingHook``, the base of the saving hooks."""

from __future__ import annotations

import functools
import os
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info

from lightning_hooks.engine.driver.driver import Driver, is_lightnings_default
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import HookCallback, callbacks_of
from lightning_hooks.engine.lightning_api import entry_point, progress
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.ranking import BestFields
from lightning_hooks.hooks.saving.store import CheckpointStore, directory_of, newest_of
from lightning_hooks.storage import files, torch_files, verification
from lightning_hooks.storage.checkpoint_io import (
    check_reads,
    wait_for_writer,
    writes_for,
)
from lightning_hooks.utils.fsdp import has_slices
from lightning_hooks.utils.secrets import describe
from lightning_hooks.utils.warn import warn

__all__ = ["BestFields", "Due", "SavingHook", "of_store"]


class Due(NamedTuple):
    """A file to write."""

    name: str
    moment: str
    """The moment for the log, as in "3 epochs"."""
    key: str = ""
    """The name of the score, for a best file."""
    score: float | None = None


def of_store(name: str) -> Any:
    """Return a property of a hook that reads and writes an attribute of the hook's store."""
    return property(
        lambda hook: getattr(hook.store, name),
        lambda hook, value: setattr(hook.store, name, value),
    )


def _best(name: str) -> Any:
    return property(lambda hook: getattr(hook.best_fields(), name))


class SavingHook(Hook):
    """Write due files when a resumed run loses nothing; have a ``ModelCheckpoint``'s attributes.

    A file by epoch is written at the end of Lightning's epoch, after the validation. A file by
    iteration is written at the end of the batch, or of the validation after the batch, or, after
    the last batch of an epoch, at the end of the epoch.

    A subclass sets ``_due`` at a point, and ``_write`` writes a due file by ``self.store``; with
    ``fast_dev_run`` no file is written. A subclass that is a ``ModelCheckpoint`` too answers
    ``ckpt_path="last"`` and ``"best"``.
    """

    # without the events of a ModelCheckpoint
    on_train_start = Callback.on_train_start
    state_dict = Callback.state_dict
    load_state_dict = Callback.load_state_dict

    # further attributes of a ModelCheckpoint for readers
    filename = None
    verbose = False
    save_last: Any = None
    monitor = _best("monitor")
    mode = _best("mode")
    save_top_k = _best("save_top_k")
    current_score = _best("current_score")
    best_model_score = _best("best_model_score")
    best_k_models = _best("best_k_models")

    # mmcv's attributes
    out_dir = of_store("out_dir")
    save_optimizer = of_store("save_optimizer")
    on_saved = of_store("on_saved")
    background = of_store("background")
    by_epoch: bool = True
    save_best: str | list[str] | None = None

    _due: Sequence[Due] = ()
    _best_path_override: str = ""
    _warned = False

    @functools.cached_property
    def store(self) -> CheckpointStore:
        """The files; for old subclasses that do not call this class's constructor."""
        return CheckpointStore()

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files."""
        return True

    def checkpoint_directory(self, runner: Runner) -> str:
        """Return the directory of the hook's checkpoints."""
        return self.store.directory(runner)

    def before_run(self, runner: Runner) -> None:
        """Keep the run."""
        super().before_run(runner)
        self.store.begin(runner)
        self._best_path_override, self._due = "", ()

    def _open(self, runner: Runner, *, make: bool) -> None:
        """Check and make the directory of the run's files."""
        stores = [hook.store for hook in runner.hooks if isinstance(hook, SavingHook)]
        self.store.open(runner, stores, make=make)

    def write_due(self, trainer: L.Trainer) -> None:
        """Write the due files."""
        if self._due and self.store.runner.may_write:
            files_due, self._due = self._due, ()
            for due in files_due:
                self._write(trainer, due)

    def _write(self, trainer: L.Trainer, due: Due) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _write(trainer, due)")

    # -- Lightning's events ----------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Verify checkpoints when the Trainer reads them."""
        strategy, fit = trainer.strategy, self.joined_fit
        if fit is not None:
            fit.callback(self.store.thread.free)
            if strategy.restore_checkpoint_after_setup and "load_checkpoint" not in vars(strategy):
                fit.patch(strategy, "load_checkpoint", partial(_verify, trainer))
            check_reads(trainer, fit)
        self._load_last(trainer)
        is_hosted = self.hosted_at is not None and isinstance(self, ModelCheckpoint)
        has_default = any(map(is_lightnings_default, callbacks_of(trainer)))
        if is_hosted and has_default and not self._warned:
            self._warned = True
            warn(
                f"Lightning's default ModelCheckpoint runs beside the {type(self).__name__} in a "
                "HookAdapter and writes a second set of files; switch it off with "
                "Trainer(enable_checkpointing=False)",
            )

    def _load_last(self, trainer: L.Trainer) -> None:
        """Load the file for ``ckpt_path="last"`` if Lightning has not found the file."""
        hooks = [hook for hook in Driver.of(trainer).roster.hooks if isinstance(hook, SavingHook)]
        if hooks[0] is not self:
            return
        chosen = entry_point.chosen_path(trainer)
        is_lost = chosen is None and entry_point.asks_for_last(trainer)
        path = trainer.strategy.broadcast(_newest(trainer)) if is_lost else None
        found = path or chosen
        for hook in hooks:
            hook.store.resumed_from = None if found is None else str(found)
        if path is None:
            return
        restores_later = trainer.strategy.restore_checkpoint_after_setup
        if restores_later or not entry_point.load_checkpoint(trainer, path):
            name = type(trainer.strategy).__name__ if restores_later else "this Lightning"
            raise ValueError(
                f'ckpt_path="last" finds no hook of a HookAdapter with {name}: write '
                f'ckpt_path="{path}"'
            )
        rank_zero_info(f'ckpt_path="last" is {path}')

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write due files by iteration, unless a validation follows; raise the thread's error."""
        self.store.thread.raise_error()
        if not self._due or progress.validates_next(trainer):
            return
        if not progress.is_last_batch(trainer):  # a resume would go back to the old pass
            self.write_due(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files within an epoch, unless the epoch is about to end."""
        if self._due and not progress.epoch_is_over(trainer):
            self.write_due(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files, after all other callbacks and the module."""
        self.write_due(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread."""
        if self.background:
            try:
                self.store.thread.wait()
            finally:  # no rank may look for the last file earlier
                trainer.strategy.barrier("SavingHook.on_train_end")

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the thread; log its error, which would hide the exception if raised."""
        try:
            self.store.thread.wait()
        except Exception:
            Driver.of(trainer).runner.logger.exception("A checkpoint was not written")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the thread."""
        self.store.thread.wait()

    # -- what Lightning reads --------------------------------------------------------------

    def on_checkpoint_saved(self, path: str) -> None:
        """Call Lightning's loggers after a file of this hook, as a ``ModelCheckpoint`` does.

        The writing thread calls, so that ``WandbLogger(log_model="all")`` uploads beside training.
        """
        if path == self.store.written[0]:
            for logger in self.store.runner.trainer.loggers:
                self._show_to(logger)

    def _show_to(self, logger: Logger) -> None:
        try:
            logger.after_save_checkpoint(weakref.proxy(self))
        except Exception as error:
            self.store.runner.logger.warning(
                "%s: %s.after_save_checkpoint() raised %s; training goes on",
                *(type(self).__name__, type(logger).__name__, describe(error)),
            )

    def best_fields(self) -> BestFields:
        """Return the best files so far."""
        return BestFields()

    @property
    def _messages(self) -> dict[str, Any]:
        meta = None if self.store.runner is None else self.store.runner.meta
        found: dict[str, Any] = (meta or {}).get("hook_msgs", {})
        return found

    @property
    def last_checkpoint(self) -> str:
        """The newest intact file, or an empty string.

        Before the first fit, the current directory is searched as the work directory.
        """
        return newest_of([(self.store, self.dirpath)]) or ""

    @property
    def dirpath(self) -> str:
        """The directory of the files, by Lightning's name."""
        return self.store.last_directory()

    @property
    def _fs(self) -> Any:
        """The file system of ``to_yaml``."""
        return files.filesystem(self.dirpath)[0]

    @property
    def last_model_path(self) -> str:
        """The path of the last file, by Lightning's name."""
        return self._messages.get("last_ckpt") or self._messages.get("best_ckpt") or ""

    @property
    def save_weights_only(self) -> bool:
        """Whether the files are for loading weights only."""
        return not self.save_optimizer

    @property
    def best_model_path(self) -> str:
        """The file for ``ckpt_path="best"``: the best by the first key, else the last.

        Before the first fit of a process, an empty string.
        """
        if self._best_path_override or self.store.runner is None:
            return self._best_path_override
        found = self.best_fields().best_model_path or self._messages.get("best_ckpt")
        return found or self.last_model_path

    @best_model_path.setter
    def best_model_path(self, path: str) -> None:
        self._best_path_override = path  # a launcher sets the path after a fit in another process

    def _find_last_checkpoints(self, trainer: L.Trainer) -> set[str]:
        """Return the file for ``ckpt_path="last"``, also before any fit."""
        hooks = [one for one in trainer.checkpoint_callbacks if isinstance(one, SavingHook)]
        newest = _newest(trainer) if hooks[:1] == [self] else None  # the first answers for all
        return {newest} if newest else set()

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
        if self.store.runner is None:
            raise RuntimeError("export() before a fit needs model=, a torch.nn.Module")
        runner = self.store.runner
        trainer, module = runner.trainer, runner.module
        chosen = unwrap(runner.model) if model is None else model(module)
        source = self.exported_checkpoint
        if not source:
            return self._export_present(path, chosen)
        if self.store.in_parts or os.path.isdir(source):
            self._require_present_weights(source)
            return self._export_present(path, chosen)
        if chosen is not module:
            self._require_whole(chosen)
        if self.background and not files.exists(source):
            self.store.thread.wait()
        if trainer.is_global_zero:
            weights = _part_of(_weights_in(source, trainer), module, chosen)
            torch_files.save_state_dict(weights, os.fspath(path))
        if trainer.strategy.restore_checkpoint_after_setup:  # a strategy with shards
            trainer.strategy.barrier("SavingHook.export")
        return None

    @property
    def exported_checkpoint(self) -> str:
        """The path of the checkpoint for ``export()``; an empty string before the first."""
        return self._messages.get("last_ckpt") or ""

    def _export_present(self, path: str, model: torch.nn.Module) -> None:
        self._require_whole(model)
        torch_files.save_state_dict(model.state_dict(), os.fspath(path))

    def _require_whole(self, model: torch.nn.Module) -> None:
        trained = self.store.runner and self.store.runner.trainer.model
        if trained is not None and has_slices(trained, model.parameters()):
            raise ValueError(
                "export() cannot gather parameters that FSDP has flattened: call "
                "trainer.save_checkpoint(path, weights_only=True) on all ranks"
            )

    def _require_present_weights(self, path: str) -> None:
        """Raise unless a directory of shards holds the module's present weights."""
        natives = [hook for hook in self.store.runner.hooks if isinstance(hook, HookCallback)]
        averages = [type(hook).__name__ for hook in natives if hook.averages_weights]
        if self.kept_kind == "last" and not averages:
            return
        own = f", or {averages[0]}.export() for the average of the last step" if averages else ""
        raise ValueError(
            f"export() cannot read {os.path.basename(path)}, a directory with a part of each rank: "
            "make a file of it with python -m lightning.pytorch.utilities.consolidate_checkpoint "
            f"{path}, or have one written (save_distributed_checkpoint=False, "
            f"state_dict_type='full'){own}"
        )


def _newest(trainer: L.Trainer) -> str | None:
    """Return the file for ``ckpt_path="last"``: the newest of all hooks of the Trainer."""
    given = Driver.of(trainer).roster.hooks
    hooks = [hook for hook in given if isinstance(hook, SavingHook) and hook.writes_files]
    hooks.sort(key=lambda hook: hook.kept_kind != "last")  # a tie is a CheckpointHook's
    work_dir, for_fit = Driver.work_dir(trainer), trainer.state.fn == TrainerFn.FITTING
    places = [(hook.store, directory_of(hook.out_dir, work_dir)) for hook in hooks]
    return newest_of(places, for_fit=for_fit)


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
