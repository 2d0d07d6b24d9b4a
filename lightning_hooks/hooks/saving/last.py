"""Write checkpoints by epochs, iterations or minutes, keep the last ones: ``CheckpointHook``."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.events import restore_events
from lightning_hooks.engine.lightning_api.sigterm import ends_all_ranks
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.mmcv_checkpoint import file_name
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.best import BestFiles, best_files_of, inferred
from lightning_hooks.hooks.saving.directory import (
    checked_out_dir,
    filename_template,
    refuse_other_storage,
)
from lightning_hooks.hooks.saving.due import Due, DueFiles, SavingHook, files_of
from lightning_hooks.hooks.saving.lightning_view import BestFields
from lightning_hooks.hooks.saving.ranking import is_due
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.hooks.sync_buffers import sync_buffers
from lightning_hooks.storage import checkpoints, files, find_checkpoints
from lightning_hooks.storage.manifest import ChooseOld
from lightning_hooks.utils.arguments import (
    check_bool,
    check_choice,
    check_int,
    check_needed,
    check_number,
    shown,
)
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.secrets import without_user

__all__ = ["CheckpointHook", "Clock", "LastFiles"]


class Clock:
    """The time since a hook's last file, as rank 0 measures it.

    Args:
        iterations: The iterations done at the last file, or at the beginning.
    """

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self._started = time.monotonic()
        self._next_look = 0

    def is_past(self, minutes: float, done: int, trainer: L.Trainer) -> bool:
        """Return whether the minutes are over; several ranks agree in few iterations.

        Args:
            minutes: The time between two files.
            done: The iterations done.
            trainer: The Trainer of the ranks.
        """
        if done < self._next_look:
            return False
        share = (time.monotonic() - self._started) / (60 * minutes)
        if trainer.world_size > 1:
            counted = done - self.iterations
            left = counted * (1 / share - 1) if share else 1  # iterations, at the speed so far
            next_look = done + max(1, min(counted, int(left / 2)))
            share, self._next_look = trainer.strategy.broadcast((share, next_look))
        return share >= 1


class LastFiles(DueFiles):
    """The last checkpoints of a run: those of other series and the best files are considered.

    Args:
        store: Writes the files.
        template: The file name, with ``{}`` for a number; None for mmcv's.
        every_minutes: Minutes of training after which a file is due; None for never.
        on_exception: Whether an exception in training writes a file.
    """

    kind = "last"
    clock: Clock
    """Counts from the last due file, or the beginning."""
    is_asked = False
    """Whether the hook's point was called in the run, not a subclass's alone."""
    waits = False
    """Whether a file is due after the batch with which accumulated gradients are stepped."""
    _series: str
    _choose_old: ChooseOld | None = None
    _others: Sequence[CheckpointStore] = ()
    """The stores of the other hooks with the same file names and directory."""
    _best: Sequence[BestFiles] = ()
    """The best files of the run."""

    def __init__(
        self,
        store: CheckpointStore,
        template: str | None = None,
        every_minutes: float | None = None,
        on_exception: bool = False,
    ) -> None:
        super().__init__(store)
        store.template = template or ""
        self.every_minutes, self.on_exception = every_minutes, on_exception

    @property
    def path(self) -> str:
        """The path of the last file; empty before the first."""
        return self.messages.get("last_ckpt") or ""

    def begin(self, runner: Runner, owner: SavingHook) -> None:
        """Begin a run of the hook."""
        super().begin(runner, owner)
        self.waits = False
        self.store.template = self.store.template or filename_template(None, owner.by_epoch)
        self.clock, self.is_asked = Clock(runner.iter), False

    def clean_up(self, interval: int, limit: int, resumed_at: int) -> None:
        """Find the other hooks of the same file names, and delete the superseded files.

        Each hook has a series of its own; a file is deleted when superseded in all series.

        Args:
            interval: The hook's interval.
            limit: The number of files to keep; -1 for all.
            resumed_at: The iterations done in the file to resume from.
        """
        store, hooks = self.store, self.store.runner.hooks
        self._best = best_files_of(hooks)
        self._others = [
            kind.store
            for kind in files_of(hooks)
            if isinstance(kind, LastFiles) and kind is not self
            if (kind.store.template, kind.store.path) == (store.template, store.path)
        ]
        self._series = store.template
        if self._others:  # not by position: a resumed run may list the hooks in another order
            self._series += f" every {interval}, {limit} kept"
        self._choose_old = None if limit == -1 else partial(checkpoints.superseded, limit=limit)
        store.clean_up(self._series, self._choose_old, resumed_at)

    def mark_due(self, number: int, unit: str, by_epoch: bool) -> None:
        """Mark the file of a number of ``"epochs"`` or ``"iterations"`` as due.

        As in mmcv, later hooks of the point find the file's path in ``runner.meta``.
        """
        self.store.thread.wait()  # what is told of the file before names that file
        template = self.store.template if (unit == "epochs") == by_epoch else "iter_{}.pth"
        name = os.path.normpath(file_name(template, number)).replace(os.sep, "/")
        self.due = [Due(name, f"{number} {unit}")]
        runner = self.store.runner
        if runner.meta is not None and runner.may_write:
            messages = runner.meta.setdefault("hook_msgs", {})
            messages["last_ckpt"] = files.join(self.store.path, name)

    def mark_repeated(self, by_epoch: bool) -> None:
        """Mark the file resumed from as due anew, after the validation, or end, that is repeated.

        The file was written when an error or a signal had cut the events. Written anew, the
        file is that of an uninterrupted run: a later run does not repeat the validation.
        """
        store = self.store
        runner = store.runner
        if runner.iter != self.clock.iterations:  # batches have run since the resume
            return
        number, unit = (runner.epoch, "epochs") if by_epoch else (runner.iter, "iterations")
        name = os.path.normpath(file_name(store.template, number))
        if store.resumed_from == files.join(store.path, name.replace(os.sep, "/")):
            self.mark_due(number, unit, by_epoch)

    def write(self, due: Due) -> None:
        """Write a file, after the best files: the new file names them."""
        for best in self._best:
            best.write_due()
        after = [best.store for best in self._best]
        target = self.store.target(due.name, self._series, self._choose_old)
        if not (self._others and self.store.claim(target, self._others)):
            self.store.write(target, f"Saving checkpoint at {due.moment}", after)


@HOOKS.register_module()
class CheckpointHook(SavingHook, ModelCheckpoint):  # type: ignore[misc]
    """Write Lightning checkpoints by epochs, iterations or minutes, and keep the last ones.

    A checkpoint is written after the validation at the same moment, where a resumed run loses
    nothing: see :class:`~lightning_hooks.hooks.saving.due.SavingHook`. If the validation raises an
    error, the due file is written then; a process killed in the validation resumes from the file
    before. A resumed run repeats the validation as a whole.

    A file is written beside its name, synced and renamed. Then ``latest.pth`` is pointed at the
    file, and older files are deleted: only files written by this hook, in this run or the run
    resumed from, and not kept by another ``CheckpointHook`` of the Trainer. Files of other runs in
    the directory are reported once when a run begins; equal names are overwritten. The manifest
    ``checkpoints.json`` lists each file with size and checksum
    (:mod:`lightning_hooks.storage.manifest`). A file changed since is not deleted, with a warning.
    The next run in the directory deletes half-written files of killed processes.

    To Lightning, the hook is a ``ModelCheckpoint``, so Lightning adds none and refuses
    ``Trainer(enable_checkpointing=False)`` beside the hook. ``ckpt_path="last"`` is the newest
    intact file of the directory, in a new process too. After a fit of the Trainer,
    ``ckpt_path="best"`` is the best file by ``save_best``, an ``EvalHook`` or a
    ``BestCheckpointHook``, else the last. A hook in a ``HookAdapter`` needs
    ``enable_checkpointing=False``. Damaged files are not loaded.

    A resumed run is bit-equal, also from a file within a pass over the data, with torch's ordinary
    ``DataLoader`` or a loader with a ``state_dict``; of a stream without a ``state_dict`` a line
    says that a new pass begins. A file by iterations or minutes waits for the batch with which
    Lightning steps accumulated gradients. From a file at an exception the run goes on with the
    batch whose step has failed, and with the random numbers after the failed step's. Gradients are
    in no file: after a file at an exception, or where a hook accumulates, within a window of
    accumulated gradients the first step lacks the window's earlier batches, and a line says how
    many.

    Lightning's ``AsyncCheckpointIO`` is replaced during a fit (``background`` writes in a thread).
    A ``CheckpointIO`` of the user's own class reads and writes the files itself; the hook waits
    for an asynchronous writer.

    ==========================  ==============================================================
    key in ``runner.meta``      value
    ==========================  ==============================================================
    hook_msgs["last_ckpt"]      the path of the last file, also within the file itself
    ==========================  ==============================================================

    Args:
        interval: Epochs or iterations between files; -1 for the last file only.
        by_epoch: Whether to count epochs, else iterations.
        save_optimizer: Whether to save the optimizer's state. Without, the files are for loading
            weights and a run cannot be resumed from them. ``"last"``: the best files by
            ``save_best`` are without, the others with.
        out_dir: The parent directory; files are written to a subdirectory with the work
            directory's name. By default the work directory itself. fsspec paths such as
            ``s3://...`` are allowed.
        max_keep_ckpts: The number of files to keep, including the last; -1 for all.
        save_last: Whether to write a file at the end of training, whatever the interval.
        sync_buffer: Whether to average floating-point buffers over the ranks before saving.
        file_client_args: mmcv's choice of a storage; ``None`` or ``dict(backend="disk")``.
        filename_tmpl: The file name, with ``{}`` for the number of epochs or iterations done;
            ``epoch_{}.pth`` or ``iter_{}.pth`` by default.
        create_symlink: Whether to keep ``latest.pth``; by default for local files.
        background: Whether a thread writes the file. Training waits for one copy in memory, kept
            for the next save, and for the previous file if not on the disk yet. An error is raised
            after the next step, or at the end. Of a directory, a thread of each rank writes the
            rank's part, the directory is listed when all parts are on the disk, and an error of any
            rank is raised on all.
        on_saved: A function of the path, for example an upload. Called on rank 0, by the writing
            thread, for each file on the disk.
        save_best: Names of values logged in the Trainer's validations. The best files by each name
            are kept too, as by a ``BestCheckpointHook``, and do not count for ``max_keep_ckpts``.
        rule: ``"greater"`` or ``"less"``: which values are better; by default inferred from the
            name, as by ``BestCheckpointHook``.
        greater_keys: Names, or parts of names, of values where greater is better.
        less_keys: Names, or parts of names, of values where less is better.
        keep_best: The number of files to keep by each name, at least 1.
        every_minutes: Minutes of training after which a file ``iter_<n>.pth`` is written too,
            counted from the hook's last file; None for never.
        on_exception: Whether an exception, Ctrl-C or SIGTERM in training writes a file
            ``iter_<n>.pth`` too, unless the last file has all iterations. A line names the file.
            With several ranks, only SIGTERM writes a file: of rank 0 at the next batch, of another
            rank where the ranks agree next, at the latest at the end of the epoch.
        save_begin: The epochs or iterations after which the first file by ``interval`` is written;
            the others follow by ``interval``, as MMEngine's. 0 for after ``interval``.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an interval or number to keep of 0, a ``save_begin`` below 0, an argument
            of the best files without ``save_best``, a template without ``{}``, or a storage other
            than the disk; before the first iteration, for a remote ``out_dir`` with a strategy that
            writes directories, or FSDP's ``use_orig_params=False`` with one file.
        ImportError: if the package for a remote ``out_dir`` is missing.
        OSError: before the first iteration, if the directory cannot be made or written to.

    Source: mmcv's ``CheckpointHook``; ``save_best``, its arguments and ``save_begin`` are
    MMEngine's.

    Note:
        Departures from mmcv: the files are Lightning's, with mmcv's ``meta`` inside; "Saving
        checkpoint" is logged when the file is on the disk, not before; ``last_ckpt`` in a file
        names the file itself, not the previous file; exactly ``max_keep_ckpts`` files are kept,
        including the last and after a resume; the last file is also written where training ends
        early; ``interval=0`` and ``max_keep_ckpts=0`` are refused; integer buffers are not averaged
        (mmcv fails on them); unlisted or changed files are not deleted; a file without the
        optimizer is refused for a resume.
    """

    interval: int = -1
    _save_begin: int = 0
    save_optimizer: bool | Literal["last"] = True
    max_keep_ckpts: int = -1
    sync_buffer: bool = False
    _transient = ("_has_run",)
    _has_run = False
    _best: BestFiles | None = None
    """The best files, with ``save_best``."""

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool | Literal["last"] = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        sync_buffer: bool = False,
        file_client_args: dict[str, Any] | None = None,
        filename_tmpl: str | None = None,
        create_symlink: bool | None = None,
        background: bool = False,
        on_saved: Callable[[str], object] | None = None,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: str | list[str] | None = None,
        less_keys: str | list[str] | None = None,
        keep_best: int = 1,
        every_minutes: float | None = None,
        on_exception: bool = False,
        save_begin: int = 0,
    ) -> None:
        for name, number in (("interval", interval), ("max_keep_ckpts", max_keep_ckpts)):
            check_int(name, number)
            if number < 1 and number != -1:
                raise ValueError(
                    f"{name} must be at least 1, or -1 for no limit, got {shown(number)}"
                )
        check_int("save_begin", save_begin, 0)
        if isinstance(save_optimizer, str):
            check_choice("save_optimizer", save_optimizer, ["last"], "True, False")
        else:
            check_bool(save_optimizer=save_optimizer)
        check_bool(by_epoch=by_epoch, save_last=save_last)
        check_bool(sync_buffer=sync_buffer, on_exception=on_exception)
        if every_minutes is not None:
            check_number("every_minutes", every_minutes, above=0)
        if not (create_symlink is None or isinstance(create_symlink, bool)):
            raise TypeError(f"create_symlink must be a bool or None, got {shown(create_symlink)}")
        refuse_other_storage(file_client_args)
        if save_best is None:
            keys = {"greater_keys": (greater_keys, None), "less_keys": (less_keys, None)}
            check_needed("save_best", keep_best=(keep_best, 1), rule=(rule, None), **keys)
        store = CheckpointStore(background, on_saved)
        store.create_symlink, store.save_optimizer = create_symlink, bool(save_optimizer)
        self.out_dir = checked_out_dir(out_dir)
        self.interval, self._save_begin = interval, save_begin
        self.by_epoch = by_epoch
        self.save_optimizer = save_optimizer
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.sync_buffer = sync_buffer
        self._last = LastFiles(
            store, filename_template(filename_tmpl, by_epoch), every_minutes, on_exception
        )
        if save_best is not None:
            self._best = BestFiles(
                CheckpointStore(background, on_saved),
                *(type(self).__name__, save_best, rule, keep_best),
                choose_rule=inferred(greater_keys, less_keys),
            )

    @functools.cached_property
    def _last(self) -> LastFiles:
        """The last files; for old subclasses that do not call this class's constructor."""
        store = CheckpointStore()
        store.create_symlink = None
        return LastFiles(store)

    @functools.cached_property
    def _files(self) -> Sequence[DueFiles]:  # type: ignore[override]
        return [self._last] if self._best is None else [self._best, self._last]

    # -- mmcv's points: is a file due? -----------------------------------------------------

    def _unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the end of a batch, where no file may be due."""
        return () if self._last.every_minutes is not None else super()._unused_events(trainer)

    def before_run(self, runner: Runner) -> None:
        """Check and clean up the directory of the files."""
        for kind in self._files:
            kind.store.save_optimizer = self.save_optimizer in (True, kind.kind)
        super().before_run(runner)
        self._has_run = True
        self._last.open(make=True)
        self._last.clean_up(self.interval, self.max_keep_ckpts, runner.iter)
        if self._best is not None:
            self._best.open(make=True)
            self._best.warn_without_validation()

    def after_train_epoch(self, runner: Runner) -> None:
        """Mark a file as due, if epochs are counted."""
        self._last.is_asked |= self.by_epoch
        is_last = self.save_last and self.is_last_epoch(runner)
        if self.by_epoch and (is_last or self._is_at_interval(runner)):
            self._mark_due(runner, runner.epoch + 1, "epochs")
            self._last.clock = Clock(runner.iter)

    def after_train_iter(self, runner: Runner) -> None:
        """Mark a file as due, if iterations or minutes are counted."""
        last = self._last
        last.is_asked |= not self.by_epoch
        is_last = self.save_last and self.is_last_iter(runner)
        writes = not self.by_epoch and (is_last or self._is_at_interval(runner))
        if last.every_minutes is not None and not writes:
            writes = last.clock.is_past(last.every_minutes, runner.iter + 1, runner.trainer)
        last.waits |= writes
        if last.waits and not progress.accumulates(runner.trainer):
            last.waits = False
            self._mark_due(runner, runner.iter + 1, "iterations")
            last.clock = Clock(runner.iter + 1)

    def _is_at_interval(self, runner: Runner) -> bool:
        if self._save_begin:
            done = (runner.epoch if self.by_epoch else runner.iter) + 1
            return self.interval > 0 and is_due(done, self._save_begin, self.interval)
        # mmcv's helpers, which a subclass may override
        every = self.every_n_epochs if self.by_epoch else self.every_n_iters
        return every(runner, self.interval)

    def save_after_iter(self, runner: Runner) -> None:
        """Write a file after the present iteration, whatever the interval."""
        restore_events([self], ["on_train_batch_end"])
        self._mark_due(runner, runner.iter + 1, "iterations")
        self._last.clock = Clock(runner.iter + 1)

    def _mark_due(self, runner: Runner, number: int, unit: str) -> None:
        self._last.mark_due(number, unit, self.by_epoch)
        if self.sync_buffer and runner.world_size > 1:
            sync_buffers(runner.module, means_only=True)

    # -- Lightning's events: the file is written -------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset the mark of a fit with batches."""
        self._has_run = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the directory, if a subclass's own ``before_run`` has not."""
        if not self._has_run:
            CheckpointHook.before_run(self, Driver.of(trainer).runner)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Compare the values logged in the validation, with ``save_best``; write due files."""
        if self._best is not None:
            self._best.after_validation(trainer, self.by_epoch)
        if self._has_run and not self._last.due:
            self._last.mark_repeated(self.by_epoch)
        super().on_validation_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files, and anew a file before events that the run has repeated."""
        if self._has_run and not self._last.due:
            self._last.mark_repeated(self.by_epoch)
        super().on_train_epoch_end(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the last file, if training has ended early; wait for the thread."""
        runner = self._last.store.runner
        is_behind = self._last.clock.iterations != runner.iter
        if self.save_last and is_behind and not self._has_own_moments():
            ended_at = (runner.epoch, "epochs") if self.by_epoch else (runner.iter, "iterations")
            self._mark_due(runner, *ended_at)
            self._write_due()
        super().on_train_end(trainer, pl_module)

    def _has_own_moments(self) -> bool:
        """Return whether a subclass's point has replaced this class's, as old hooks may."""
        point = self.after_train_epoch if self.by_epoch else self.after_train_iter
        return not (is_ours(point) or self._last.is_asked)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Clean up after a resume without a batch left to run."""
        super().on_fit_end(trainer, pl_module)
        if not self._has_run:
            self._last.begin(Driver.of(trainer).runner, self)
            done = progress.batches(trainer).total.processed
            self._last.clean_up(self.interval, self.max_keep_ckpts, done)
        self._has_run = False  # an error in a later evaluation ends no fit

    def _save_after_error(self, trainer: L.Trainer, exception: BaseException) -> None:
        """Write the due files, else a file with ``on_exception``; log how to go on."""
        has_run, self._has_run = self._has_run, False
        runner, last = self._last.store.runner, self._last
        if not (has_run and runner.may_write):
            return super()._save_after_error(trainer, exception)
        was_due, is_new = self._is_due(), runner.iterations_done != last.clock.iterations
        if last.on_exception and not was_due and is_new and self._writes_after(exception):
            self._mark_due(runner, runner.iterations_done, "iterations")
        super()._save_after_error(trainer, exception)
        if (last.on_exception or was_due) and ends_all_ranks(exception, trainer):
            self._report_error(exception, ", with a file due" if was_due else "")
        return None

    def _report_error(self, exception: BaseException, due: str) -> None:
        """Log after an error how to go on."""
        store = self._last.store
        try:
            path = find_checkpoints.newest_valid(store.path, resumable=True)
        except Exception:  # it would hide the exception
            store.runner.logger.exception("The checkpoints cannot be listed")
            return
        store.runner.logger.info(
            "%s after %d iterations%s; %s",
            *(type(exception).__name__, store.runner.iterations_done, due),
            f'to go on from {without_user(path)} write trainer.fit(..., ckpt_path="last")'
            if path
            else "no file to go on from",
        )

    # -- the best files --------------------------------------------------------------------

    def _best_fields(self) -> BestFields:
        """Return the best files so far, by the first hook that keeps the best."""
        runner = self._last.store.runner
        in_run = [] if runner is None else [b for b in best_files_of(runner.hooks) if b.is_used]
        source = self._best or next(iter(in_run), None)
        return BestFields(save_top_k=self.max_keep_ckpts) if source is None else source.fields()
