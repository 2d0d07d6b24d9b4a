"""Write checkpoints by epoch or by iteration and keep the last ones: ``CheckpointHook``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lightning as L

from lightning_hooks._exports import import_name
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.events import skip_events
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.checkpoint.paths import (
    checked_out_dir,
    filename_template,
    refuse_other_storage,
)
from lightning_hooks.hooks.checkpoint.shared_names import SharedNames
from lightning_hooks.storage import checkpoints, files
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.manifest import ChooseOld
from lightning_hooks.utils.arguments import check_bool, check_int
from lightning_hooks.utils.dtensors import is_sharded

__all__ = ["CheckpointHook"]


@HOOKS.register_module()
class CheckpointHook(SharedNames):
    """Write Lightning checkpoints that ``Trainer.fit(ckpt_path=...)`` resumes from.

    A checkpoint that is due at one of mmcv's points is written where a resume from it loses
    nothing: see :class:`~lightning_hooks.hooks.checkpoint.writer.CheckpointWriter`. Where a
    validation follows, the file is written after it: a process that dies in the validation resumes
    from the file before.

    A file gets its name when it is complete and on the disk; then ``latest.pth`` is pointed at it,
    and older files are deleted: only those that this hook has written, in this run or the one
    resumed from, and that no other ``CheckpointHook`` of the Trainer keeps. Files of other runs in
    the directory are reported once when a run begins; those whose names it uses are overwritten.
    All are listed, with size and CRC-32, in ``checkpoints.json``
    (:mod:`lightning_hooks.storage.manifest`). One that is no longer as it is listed stays when its
    turn to be deleted comes, with a warning. The next run in the directory deletes what a killed
    process has left half-written.

    ``ckpt_path="last"`` is the newest file of the directory that is as it was written, in a new
    process too; so is ``"best"``, the best by ``save_best``, an ``EvalHook`` or
    ``BestCheckpointHook``, else the last. Given to the Trainer itself, it is a ``ModelCheckpoint``
    to Lightning, which adds none. Lightning refuses ``Trainer(enable_checkpointing=False)`` beside
    it; in a ``HookAdapter``, give that. A file that was damaged since is not loaded.

    A run resumed from a file that was written at the end of a pass over the data, as all are by
    epoch, is bit-equal. From one written within a pass, by iteration, counters, schedules and
    optimizers are restored, but a ``DataLoader`` begins the pass anew, for as many batches as
    were left of it; one with a ``state_dict``, as torchdata's ``StatefulDataLoader``, continues.
    Gradients accumulated since the last optimizer step are in no file: the next step uses the
    other batches of its window. An ``interval`` that is a multiple of a pass, or at least of the
    accumulated iterations, avoids both.

    This holds whether or not the Trainer has Lightning's ``AsyncCheckpointIO`` (a thread writes
    the files with ``background``); a ``CheckpointIO`` of the user's own kind writes and reads them
    itself, and is waited for if it is asynchronous.

    ==========================  ==============================================================
    key in ``runner.meta``      value
    ==========================  ==============================================================
    hook_msgs["last_ckpt"]      the path of the file, in the file itself too
    ==========================  ==============================================================

    Args:
        interval: Epochs or iterations from one file to the next; -1 for the last one only.
        by_epoch: Whether epochs or iterations are counted.
        save_optimizer: Whether the run can be resumed from the files; without, they are for
            loading weights.
        out_dir: The directory in which files are written to one with the work directory's name;
            the work directory by default. Paths of fsspec's, as ``s3://...``, are allowed.
        max_keep_ckpts: How many files are kept, the last included; -1 for all.
        save_last: Whether a file is written at the end of training, whatever the interval.
        sync_buffer: Whether buffers of floating-point type are averaged over the ranks before.
        file_client_args: mmcv's choice of a storage; ``None`` or ``dict(backend="disk")``.
        filename_tmpl: The name, with ``{}`` for the number of epochs or iterations done;
            ``epoch_{}.pth`` or ``iter_{}.pth`` by default.
        create_symlink: Whether ``latest.pth`` is kept; by default where the files are local.
        background: Whether a thread writes the file while the training goes on: the training
            waits for one copy in memory, which is kept, and for the previous file, if that is not
            on the disk yet. An error is raised after the next step, or at the end.
        on_saved: A function, called with the path of each file when it is on the disk, on rank 0,
            by the thread that has written it; to upload it, for example.
        save_best: Names of values that the module logs in the Trainer's validations: the best
            by each are kept too, as by a ``BestCheckpointHook``, and not counted among
            ``max_keep_ckpts``; the hook brings an ``EvalHook`` for it, which is listed beside it.
        rule: ``"greater"`` or ``"less"``: which of these values are better; by default inferred
            from the name, as by ``BestCheckpointHook``.
        greater_keys: Names, or parts of names, of values that are better when greater.
        less_keys: The same of values that are better when less.
        keep_best: How many checkpoints are kept by each name, at least 1.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an interval or number to keep of 0, a template without ``{}``, or a
            storage that is not a path of fsspec's; before the first iteration, for a remote
            ``out_dir`` where the strategy writes directories, or ``use_orig_params=False`` of
            FSDP's where it does not.
        ImportError: if the package for a remote ``out_dir`` is missing.
        OSError: before the first iteration, if the directory cannot be made or written to.

    Source: mmcv's ``CheckpointHook``; ``save_best`` and its arguments are MMEngine's.

    Note:
        Departures from mmcv: the files are Lightning's, with mmcv's ``meta`` in them; "Saving
        checkpoint" is logged when the file is on the disk, not before it is written;
        ``last_ckpt`` in a file names that file, not the one before; exactly ``max_keep_ckpts``
        are kept, the last one and after a resume too; the last one is also written where
        training ends early; ``interval=0`` and ``max_keep_ckpts=0`` are refused; integer buffers
        are not averaged (mmcv fails on them); files that are not in the manifest, or differ from
        it, are not deleted; one without the optimizer is refused for a resume.
    """

    reads_step = False
    keeps = "last"
    key_arguments = ("out_dir", "filename_tmpl")
    _saved_at: int | None = None
    _has_run = False

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
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
    ) -> None:
        for name, number in (("interval", interval), ("max_keep_ckpts", max_keep_ckpts)):
            check_int(name, number)
            if number < 1 and number != -1:
                raise ValueError(f"{name} must be at least 1, or -1 for no limit, got {number}")
        check_bool(by_epoch=by_epoch, save_optimizer=save_optimizer, save_last=save_last)
        check_bool(sync_buffer=sync_buffer)
        if not (create_symlink is None or isinstance(create_symlink, bool)):
            raise TypeError(f"create_symlink must be a bool or None, got {create_symlink!r}")
        refuse_other_storage(file_client_args)
        self.interval = interval
        self.by_epoch = by_epoch
        self.save_optimizer = save_optimizer
        self.out_dir = checked_out_dir(out_dir)
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.sync_buffer = sync_buffer
        self.filename_tmpl = filename_template(filename_tmpl, by_epoch)
        self.filename_templates = [self.filename_tmpl, *SharedNames.filename_templates]
        self.create_symlink = create_symlink
        self._init_writing(background, on_saved)
        if save_best is not None:
            # by name: the family of evaluations imports this one
            self.best = import_name("EvalHook")(
                None,
                by_epoch=by_epoch,
                save_best=save_best,
                rule=rule,
                greater_keys=greater_keys,
                less_keys=less_keys,
                out_dir=self.out_dir,
                keep_best=keep_best,
                background=background,
                on_saved=on_saved,
            )
            self.best.save_optimizer = save_optimizer

    def entries(self) -> Sequence[tuple[Any, int]]:
        """The hook itself, and the one that keeps the best."""
        best = [] if self.best is None else self.best.entries()
        return [*super().entries(), *best]

    # -- mmcv's points: is a file due? -----------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Check and clean up the directory of the files."""
        super().before_run(runner)
        self._due = self._saved_at = None
        self._has_run = True
        if self.by_epoch and not self.background:
            skip_events(self, CheckpointHook, "on_train_batch_end")
        self._directory = self._prepare_directory(runner, make=True)
        self._links_latest = self.create_symlink is not False and files.is_local(self._directory)
        if runner.writes_files:
            runner.logger.info("Checkpoints will be saved to %s", self._directory)
        self._clean_up(runner, resumed_at=runner.iter)

    def _clean_up(self, runner: Any, resumed_at: int) -> None:
        self._find_others(runner)
        if runner.rank == 0 and runner.writes_files:
            directory, run, choose_old = self.directory(runner), runner.run_id, self._choose_old()
            old = checkpoints.clean_up(directory, run, self._series, choose_old, resumed_at)
            self._report_deleted(directory, old)

    def _choose_old(self) -> ChooseOld | None:
        if self.max_keep_ckpts == -1:
            return None
        return partial(checkpoints.superseded, limit=self.max_keep_ckpts)

    def after_train_epoch(self, runner: Any) -> None:
        """Mark a file as due, if epochs are counted."""
        if not self.by_epoch:
            return
        due = self.every_n_epochs(runner, self.interval)
        if due or (self.save_last and self.is_last_epoch(runner)):
            self._mark_due(runner, runner.epoch + 1)

    def after_train_iter(self, runner: Any) -> None:
        """Mark a file as due, if iterations are counted."""
        if self.by_epoch:
            return
        due = self.every_n_iters(runner, self.interval)
        if due or (self.save_last and self.is_last_iter(runner)):
            self._mark_due(runner, runner.iter + 1)

    def _mark_due(self, runner: Any, number: int) -> None:
        self._due = number
        self._saved_at = runner.iter if self.by_epoch else number
        if self.sync_buffer:
            for buffer in runner.module.buffers():
                if buffer.is_floating_point() and not is_sharded(buffer):
                    mean = runner.trainer.strategy.reduce(buffer.clone(), reduce_op="mean")
                    buffer.copy_(mean)

    # -- Lightning's events: the file is written -------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note that no batch of this fit has run."""
        self._has_run = False

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the last file, if training has ended before it was due; wait for the thread."""
        runner = self._runner
        if self.save_last and self._saved_at != runner.iter:
            self._due = runner.epoch if self.by_epoch else runner.iter
            self._write(trainer)
        super().on_train_end(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Clean up after a resume in which no batch was left to run."""
        if not self._has_run:
            runner = Driver.of(trainer).runner
            self._clean_up(runner, resumed_at=progress.batches_processed(trainer))

    def _write(self, trainer: L.Trainer) -> None:
        number, self._due = self._due, None
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        runner, choose_old = self._runner, self._choose_old()
        name = os.path.normpath(self.filename_tmpl.format(number)).replace(os.sep, "/")
        path = files.join(self._directory, name)
        if runner.meta is not None:  # before the file is written, which has its own path in it
            runner.meta.setdefault("hook_msgs", {})["last_ckpt"] = path
        target = Target(
            self._directory,
            name,
            runner.run_id,
            series=self._series,
            resumable=self.save_optimizer,
            is_latest=self._links_latest,
        )
        if self._others and self._shares_file(trainer, path, target, choose_old):
            return
        unit = "epochs" if self.by_epoch else "iterations"
        log = partial(runner.logger.info, "Saving checkpoint at %d %s", number, unit)
        self._write_file(trainer, path, target, choose_old, log=log)
