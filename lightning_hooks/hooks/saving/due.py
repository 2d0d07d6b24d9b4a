"""When a due checkpoint may be written: ``SavingHook``, the base of the saving hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.driver import Driver, is_lightnings_default
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import entry_point, progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.sigterm import ends_all_ranks
from lightning_hooks.engine.roster import Roster, hook_callbacks_of
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving import export, lightning_view
from lightning_hooks.hooks.saving.directory import directory_of, newest_of
from lightning_hooks.hooks.saving.lightning_view import BestFields, LightningView, shown
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.storage import files
from lightning_hooks.utils import ranks
from lightning_hooks.utils.secrets import with_texts, with_user
from lightning_hooks.utils.warn import warn

__all__ = ["Due", "DueFiles", "SavingHook", "files_of", "last_directory"]

PATHS = "last_ckpt", "best_ckpt"
"""The beginnings of the keys of ``runner.meta["hook_msgs"]`` with paths of checkpoints."""


class Due(NamedTuple):
    """A file to write."""

    name: str
    moment: str
    """The moment for the log, as in "3 epochs"."""
    key: str = ""
    """The name of the score, for a best file."""
    score: float | None = None


class DueFiles:
    """The files of one kind, ``"last"`` or ``"best"``, that a hook keeps.

    Args:
        store: Writes the files.
    """

    kind: str = ""
    is_used: bool = True
    """Whether the hook writes files of the kind."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store
        self.due: list[Due] = []

    def begin(self, runner: Runner, owner: SavingHook) -> None:
        """Begin a run of the hook."""
        self.store.begin(runner, owner)
        self.due = []
        messages, directory = self.messages, self.store.path
        messages.update(with_user(messages, directory))  # a file is without
        paths = {k: v for k, v in messages.items() if str(k).startswith(PATHS)}
        messages.update(with_texts(paths, partial(_moved_to, directory)))

    def find(self, runner: Runner, owner: SavingHook) -> None:
        """Find the files of a finished run."""
        self.begin(runner, owner)

    def open(self, *, make: bool) -> None:
        """Check the directory of the files, and make it if asked to."""
        stores = [kind.store for kind in files_of(self.store.runner.hooks)]
        self.store.open(stores, make=make)

    def write_due(self) -> None:
        """Write the due files; none with ``fast_dev_run``."""
        if self.due and self.store.runner.may_write:
            files_due, self.due = self.due, []
            for due in files_due:
                self.write(due)

    def write(self, due: Due) -> None:
        """Write a due file."""
        raise NotImplementedError(f"{type(self).__name__} must define write(due)")

    def fields(self) -> BestFields:
        """Return the best files by the first key."""
        return BestFields()

    @property
    def path(self) -> str:
        """The path of the last file, or of the best by the first key; empty before the first."""
        raise NotImplementedError(f"{type(self).__name__} must define path")

    @property
    def messages(self) -> dict[str, Any]:
        """``runner.meta["hook_msgs"]`` of the last run: paths and scores for other hooks."""
        meta = None if self.store.runner is None else self.store.runner.meta
        messages: dict[str, Any] = (meta or {}).get("hook_msgs", {})
        return messages


class SavingHook(Hook):
    """Write due files when a resumed run loses nothing; have a ``ModelCheckpoint``'s attributes.

    A file by epoch is written at the end of Lightning's epoch, after the validation. A file by
    iteration is written at the end of the batch, or of the validation after the batch, or, after
    the last batch of an epoch, at the end of the epoch. If the validation raises an error, the due
    files are written then, in a run of one process.

    A subclass has ``DueFiles``, and adds due files at a point; with ``fast_dev_run`` no file
    is written. A subclass that is a ``ModelCheckpoint`` too answers ``ckpt_path="last"`` and
    ``"best"``.
    """

    # without the events of a ModelCheckpoint
    on_train_start = Callback.on_train_start
    state_dict = Callback.state_dict
    load_state_dict = Callback.load_state_dict

    # further attributes of a ModelCheckpoint for readers
    filename = None
    verbose = False
    save_last: Any = None
    monitor = shown("monitor")
    mode = shown("mode")
    save_top_k = shown("save_top_k")
    current_score = shown("current_score")
    best_model_score = shown("best_model_score")
    best_k_models = shown("best_k_models")
    last_checkpoint = shown("last_checkpoint")
    last_model_path = shown("last_model_path")
    dirpath = shown("dirpath")
    save_weights_only = shown("save_weights_only")
    _fs = shown("file_system")

    out_dir: str | None = None
    by_epoch: bool = True
    _reads_step = False
    _files: Sequence[DueFiles]
    """The hook's files by kind, in the order of writing; ``export()`` reads the last kind's."""
    _best_path_override: str = ""
    _warned = False

    @property
    def _kept_kinds(self) -> Sequence[str]:
        """The kinds of checkpoints kept: ``"best"``, ``"last"``."""
        return [kind.kind for kind in self._files if kind.is_used]

    @property
    def _writes_files(self) -> bool:
        """Whether the hook writes files."""
        return bool(self._kept_kinds)

    def _checkpoint_directory(self, runner: Runner) -> str:
        """Return the directory of the hook's checkpoints."""
        return directory_of(self.out_dir, runner.work_dir)

    def before_run(self, runner: Runner) -> None:
        """Begin a run."""
        super().before_run(runner)
        self._best_path_override = ""
        for kind in self._files:
            kind.begin(runner, self)

    def _write_due(self) -> None:
        for kind in self._files:
            kind.write_due()

    def _is_due(self) -> bool:
        return any(kind.due for kind in self._files)

    def _unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the end of a batch, where no file may be due."""
        kinds = [kind for kind in self._files if kind.is_used]
        is_due = any(kind.store.background or not self.by_epoch for kind in kinds)
        return () if is_due else ("on_train_batch_end",)

    # -- Lightning's events ----------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Verify checkpoints when the Trainer reads them."""
        strategy, fit = trainer.strategy, self._joined_fit
        restores_late = strategy.restore_checkpoint_after_setup
        if fit is not None and restores_late and "load_checkpoint" not in vars(strategy):
            fit.patch(strategy, "load_checkpoint", partial(lightning_view.verify, trainer))
        self._load_last(trainer)
        is_hosted = self._hosted_at is not None and isinstance(self, ModelCheckpoint)
        warns = is_hosted and not self._warned
        if warns and any(map(is_lightnings_default, callbacks_of(trainer))):
            self._warned = True
            warn(
                f"Lightning's default ModelCheckpoint runs beside the {type(self).__name__} in a "
                "HookAdapter and writes a second set of files; switch it off with "
                "Trainer(enable_checkpointing=False)",
            )

    def _load_last(self, trainer: L.Trainer) -> None:
        """Load the file for ``ckpt_path="last"`` if Lightning has not found the file."""
        hooks = _saving_hooks(Driver.of(trainer).roster.hooks)
        if hooks[0] is not self:
            return
        chosen = entry_point.chosen_path(trainer)
        is_lost = chosen is None and entry_point.asks_for_last(trainer)
        find = partial(_newest, trainer, hooks)
        newest = ranks.from_rank_0(find, trainer.world_size) if is_lost else None
        path = newest or chosen
        for kind in files_of(hooks):
            kind.store.resumed_from = None if path is None else str(path)
        if newest is not None:
            lightning_view.load(trainer, newest)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write due files by iteration, unless a validation follows; raise the thread's error."""
        for kind in self._files:
            kind.store.thread.raise_error()
        if not self._is_due() or progress.validates_next(trainer):
            return
        if not progress.is_last_batch(trainer):  # a resume would go back to the old pass
            self._write_due()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files within an epoch, unless the epoch is about to end.

        If the raw weights' validation follows, the files are written after it: a resumed run goes
        on without it, and its line would be cut from the log.
        """
        if self._is_due() and not progress.epoch_is_over(trainer):
            after_raw_scores = Driver.of(trainer).after_raw_scores
            if after_raw_scores is None:
                self._write_due()
            else:
                after_raw_scores.append(self._write_due)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files; of a ``ModelCheckpoint`` after all other callbacks and the module."""
        self._write_due()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread."""
        if any(kind.store.background for kind in self._files):
            try:
                self._wait()
            finally:  # no rank may look for the last file earlier
                trainer.strategy.barrier("SavingHook.on_train_end")

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Find the files of a finished run, for ``best_model_path`` and its like."""
        driver = Driver.of(trainer)
        if driver.has_no_batch_left:
            for kind in self._files:
                kind.find(driver.runner, self)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the thread; log its error, which would hide the exception if raised."""
        try:
            self._wait()
        except Exception:
            Driver.of(trainer).runner.logger.exception("A checkpoint was not written")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the thread; pass the paths to the process that started this process."""
        self._wait()
        store = self._files[-1].store
        if stage == "fit" and trainer.is_global_zero and store.runner is not None:
            store.handover.send(lambda: {"directory": store.path, "best": self.best_model_path})

    def _take_paths(self) -> None:
        """Take the paths of a fit in another process."""
        store = self._files[-1].store
        paths = store.handover.receive() if store.runner is None else {}
        if paths:
            store.elsewhere, self._best_path_override = paths["directory"], paths["best"]

    def _save_after_error(self, trainer: L.Trainer, exception: BaseException) -> None:
        """Write the due files: an error in the validation costs no file."""
        SavingHook.on_exception(self, trainer, trainer.lightning_module, exception)
        due = [due for kind in self._files for due in kind.due]
        if not due:
            return
        logger = Driver.of(trainer).runner.logger
        if not self._writes_after(exception):
            logger.warning(
                "%s: %s, due at %s, is not written: the other ranks may go on, or the state is bad",
                *(type(exception).__name__, due[0].name, due[0].moment),
            )
            return
        again = [(kind, [*kind.due]) for kind in self._files]
        try:
            try:
                self._write_due()
                self._wait()
            except RuntimeError as error:
                # torch raises the death of a worker wherever the main thread is, once
                if "DataLoader worker" not in str(error):
                    raise
                for kind, files_due in again:
                    kind.due = files_due
                self._write_due()
                self._wait()
        except Exception:  # it would hide the exception
            logger.exception("A checkpoint was not written")

    def _writes_after(self, exception: BaseException) -> bool:
        """Return whether files can be written after an error: all ranks end, in a good state."""
        runner = self._files[-1].store.runner
        return ends_all_ranks(exception, runner.trainer) and not runner.refuses_files

    def _wait(self) -> None:
        """Wait for the threads, and free the memory of the copies that were written."""
        for kind in self._files:
            kind.store.thread.wait()
            kind.store.thread.free()

    # -- what others read of a ModelCheckpoint ---------------------------------------------

    def _best_fields(self) -> BestFields:
        """Return the best files so far."""
        return self._files[-1].fields()

    def _view(self) -> LightningView:
        self._take_paths()
        kind = self._files[-1]
        return LightningView(kind.store, last_directory(self), kind.messages, self._best_fields())

    @property
    def best_model_path(self) -> str:
        """The file for ``ckpt_path="best"``: the best by the first key, else the last.

        Before the first fit of a process, an empty string.
        """
        self._take_paths()
        return self._best_path_override or self._view().best_model_path

    @best_model_path.setter
    def best_model_path(self, path: str) -> None:
        self._best_path_override = path  # a launcher sets the path after a fit in another process

    def _find_last_checkpoints(self, trainer: L.Trainer) -> set[str]:
        """Return the file for ``ckpt_path="last"``, also before any fit."""
        hooks = _saving_hooks(trainer.checkpoint_callbacks)
        if hooks[:1] != [self]:  # the first answers for all
            return set()
        # Lightning asks before the first setup, where no roster exists
        candidates = Roster(hook_callbacks_of(trainer)).hooks
        entry_point.connect_ranks(trainer)
        newest = ranks.from_rank_0(partial(_newest, trainer, candidates), trainer.world_size)
        return {newest} if newest else set()

    def export(
        self,
        path: str = "",
        model: torch.nn.Module | Callable[[L.LightningModule], torch.nn.Module] | None = None,
    ) -> None:
        """Write a checkpoint's ``state_dict`` alone, for ``load_state_dict`` and mmcv's loader.

        The ending names the format: ``.pth``, ``.pt`` and ``.ckpt`` give a file of ``torch.save``,
        ``.safetensors`` a file for ``safetensors.torch.load_model``, with run, epoch, iteration
        and score as metadata.

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
            TypeError: without a path.
            RuntimeError: without a fit before, unless ``model`` is a model; for a damaged
                checkpoint.
            ValueError: for a checkpoint directory, for parameters flattened by FSDP (not FSDP2),
                for objects of other classes in the checkpoint, and for a function that returns no
                part of the module; for another ending, and for values other than tensors in
                ``.safetensors``.
            ImportError: for ``.safetensors`` without the package.
            FileNotFoundError: if the checkpoint is missing.
        """
        if not os.fspath(path):
            name = type(self).__name__
            raise TypeError(f'{name}.export() needs a path, as in export("weights.pth")')
        kind = self._files[-1]
        export.export(os.fspath(path), model, kind.store, kind.path, is_last=kind.kind == "last")


def _moved_to(directory: str, path: str) -> str:
    """Return the path of a file in the directory that the run was moved to; else the path."""
    name = os.path.basename(path)
    moved = files.join(directory, name)
    is_there = files.is_local(path) and os.path.exists(path)
    return moved if name and not is_there and files.exists(moved) else path


def _saving_hooks(hooks: Iterable[Any]) -> list[SavingHook]:
    return [hook for hook in hooks if isinstance(hook, SavingHook)]


def files_of(hooks: Iterable[Any]) -> list[DueFiles]:
    """Return the files, by kind, of the saving hooks among some hooks."""
    return [kind for hook in _saving_hooks(hooks) for kind in hook._files]


def last_directory(hook: SavingHook, work_dir: str | None = None) -> str:
    """Return the directory of the last fit's files, or of the next fit's before any fit.

    Args:
        hook: The hook that writes the files.
        work_dir: The work directory of the next fit; the current directory by default.
    """
    store = hook._files[-1].store
    if store.runner is not None or store.elsewhere:
        return store.elsewhere if store.runner is None else store.path
    return directory_of(hook.out_dir, files.absolute(work_dir or "."))


def _newest(trainer: L.Trainer, hooks: Iterable[Any]) -> str | None:
    """Return the file for ``ckpt_path="last"``: the newest of all hooks of the Trainer."""
    work_dir, for_fit = Driver.work_dir(trainer), trainer.state.fn == TrainerFn.FITTING
    places = [
        (kind.kind != "last", kind.store.template, directory_of(hook.out_dir, work_dir))
        for hook in _saving_hooks(hooks)
        for kind in hook._files
        if kind.is_used
    ]
    places.sort(key=lambda place: place[0])  # a tie is a CheckpointHook's
    return newest_of([place[1:] for place in places], for_fit=for_fit)
