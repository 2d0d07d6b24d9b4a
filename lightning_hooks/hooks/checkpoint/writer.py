"""Write checkpoints at moments from which a resumed run loses nothing."""

from __future__ import annotations

import contextlib
import datetime
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import precision, progress
from lightning_hooks.engine.lightning_api.method_patch import patched
from lightning_hooks.hooks.checkpoint.paths import check_strategy, directory_of
from lightning_hooks.storage import checkpoints, files, manifest
from lightning_hooks.storage.background_save import BackgroundSaver
from lightning_hooks.storage.checkpoint_io import replace_writer, wait_for_writer
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.earlier_files import numbered
from lightning_hooks.storage.manifest import ChooseOld

__all__ = ["CheckpointWriter"]


class CheckpointWriter(Hook):
    """Mark files as due at mmcv's points, and write due files when a resume loses nothing.

    A file by epoch is written at the end of Lightning's epoch, after the validation. A file by
    iteration is written at the end of the batch, or of the validation after the batch, or, after
    the last batch of an epoch, at the end of the epoch.

    A subclass calls ``_init_writing`` in its constructor, sets ``_due`` at a point, and defines
    ``_write``, which calls ``_write_file``.
    """

    by_epoch: bool = True
    out_dir: str | None = None
    save_optimizer: bool = True
    on_saved: Callable[[str], object] | None = None
    _due: Any = None
    """The files to write, None for none."""
    _in_parts: bool = False
    """Whether each rank writes a part of a checkpoint, into a directory."""
    _background: BackgroundSaver | None = None
    _begun: str = ""
    """The last run with a report of other runs' files."""
    _runner: Any = None

    keeps: str = ""
    """The kind of files kept, ``"best"`` or ``"last"``."""

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files."""
        return True

    def before_run(self, runner: Any) -> None:
        """Keep the run, to find its files after the fit too."""
        super().before_run(runner)
        self._runner = runner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_runner"}

    def _init_writing(self, background: bool, on_saved: Callable[[str], object] | None) -> None:
        """Check and set the arguments ``background`` and ``on_saved``."""
        if not isinstance(background, bool):
            raise TypeError(f"background must be a bool, got {background!r}")
        if not (on_saved is None or callable(on_saved)):
            raise TypeError(f"on_saved must be a function of the path or None, got {on_saved!r}")
        self.on_saved = on_saved
        self._background = BackgroundSaver() if background else None

    @property
    def background(self) -> bool:
        """Whether a thread writes the files."""
        return self._background is not None

    def is_writing(self, path: str) -> bool:
        """Return whether the thread is writing a file, or has failed to write the file."""
        return self._background is not None and self._background.is_writing(path)

    def directory(self, runner: Any) -> str:
        """Return the directory of the files, by mmcv's rule for ``out_dir``."""
        return directory_of(self.out_dir, runner.work_dir)

    def last_directory(self, work_dir: str | None = None) -> str:
        """Return the directory of the last fit's files, or of the next fit's before any fit.

        Args:
            work_dir: The work directory of the next fit; the current directory by default.
        """
        if self._runner is not None:
            return self.directory(self._runner)
        work_dir = work_dir or "."
        absolute = work_dir if "://" in work_dir else os.path.abspath(work_dir)
        return directory_of(self.out_dir, absolute)

    def _prepare_directory(self, runner: Any, *, make: bool) -> str:
        """Check the directory, and make the directory, so that errors come before training."""
        directory = self.directory(runner)
        self._in_parts = precision.writes_directories(runner.trainer.strategy)
        check_strategy(runner.trainer, directory, self._in_parts, self.save_optimizer)
        if runner.rank == 0 and runner.writes_files:
            self._report_other_runs(runner, directory)
            if make:
                if files.is_local(directory):
                    files.make_directory(directory)
                files.require_writable(directory)
        return directory

    def _report_other_runs(self, runner: Any, directory: str) -> None:
        """Warn once in a run of other runs' checkpoints, which the run may overwrite."""
        writers = [hook for hook in runner.hooks if isinstance(hook, CheckpointWriter)]
        begun = [hook.directory(runner) for hook in writers if hook._begun == runner.run_id]
        self._begun = runner.run_id
        if directory not in begun:
            names = getattr(self, "filename_tmpl", None)
            resumed = runner.trainer.ckpt_path
            if resumed and files.join(directory, os.path.basename(resumed)) == str(resumed):
                names = None  # unlisted files beside the file resumed from belong to this run
            # Lightning resolves "last" by ModelCheckpoints only: no EvalHook, no hosted hook
            asked = [h for h in writers if isinstance(h, ModelCheckpoint) and h.hosted_at is None]
            by_word = directory in [hook.directory(runner) for hook in asked]
            found = report_other_runs(directory, runner.run_id, names, by_word=by_word)
            if found:
                runner.logger.warning("%s", found)

    def _write(self, trainer: L.Trainer) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _write(trainer)")

    def _write_file(
        self,
        trainer: L.Trainer,
        path: str,
        target: Target,
        choose_old: ChooseOld | None = None,
        on_written: Callable[[list[str]], None] | None = None,
        log: Callable[[], object] | None = None,
    ) -> None:
        """Write a Lightning checkpoint with mmcv's ``meta``, on all ranks together.

        Args:
            trainer: The Trainer, in a fit.
            path: The path of the target.
            target: The directory, the name and the series.
            choose_old: Chooses the files to delete when the new file is complete.
            on_written: Called on rank 0 with the names of deleted files.
            log: Called on rank 0 when the file is on the disk.
        """
        strategy, background = trainer.strategy, self._background
        receivers = self._receivers("on_checkpoint_saved")
        if self.on_saved is not None:
            receivers.insert(0, self.on_saved)
        target = target._replace(taken=datetime.datetime.now())
        written: list[str] = []

        def report(old: list[str]) -> None:
            if on_written is not None:
                on_written(old)
            self._report_deleted(target.directory, old)
            if receivers and files.exists(path):
                for receive in receivers:
                    receive(path)

        def save(checkpoint: dict[str, Any]) -> None:
            old = checkpoints.save(checkpoint, path, target, choose_old)
            if log is not None:
                log()
            if on_written or receivers or old:
                report(old)

        def write(checkpoint: dict[str, Any], path: str) -> None:
            written.append(path)
            if background is None:
                save(checkpoint)
            else:
                background.save(checkpoint, save, path)

        with contextlib.ExitStack() as stack:
            own_io = replace_writer(strategy, write)
            stack.callback(setattr, strategy, "checkpoint_io", own_io)
            if not target.resumable:  # Lightning skips callbacks, which would add mmcv's meta
                module = trainer.lightning_module
                add = partial(Driver.of(trainer).on_save_checkpoint, trainer, module)
                stack.enter_context(patched(module, "on_save_checkpoint", add))
            trainer.save_checkpoint(path, weights_only=not target.resumable)
        if trainer.is_global_zero and not written:
            # a CheckpointIO of the user's, or a strategy with a file per rank, has written
            wait_for_writer(strategy)
            if background is not None:
                warnings.warn(
                    f"background=True has no effect: {type(strategy).__name__} with "
                    f"{type(strategy.checkpoint_io).__name__} writes the checkpoints, while the "
                    "training waits",
                    stacklevel=2,
                )
            meta = {"epoch": trainer.current_epoch, "iter": Driver.of(trainer).runner.iter}
            old = checkpoints.record(target, meta, choose_old)
            if log is not None:
                log()
            report(old)
        if self._in_parts:  # no rank may look for the file earlier
            strategy.barrier("write_checkpoint")

    def _receivers(self, name: str) -> list[Callable[[Any], object]]:
        """Return the methods of a name that hooks of the run have.

        Args:
            name: ``on_checkpoint_saved(path)``, called for a file on the disk, or
                ``on_checkpoints_deleted(paths)``.
        """
        hooks = [hook for hook in self._runner.hooks if isinstance(hook, Hook)]
        return [getattr(hook, name) for hook in hooks if hasattr(hook, name)]

    def _report_deleted(self, directory: str, names: Sequence[str]) -> None:
        """Pass the paths of deleted files to the hooks."""
        receivers = self._receivers("on_checkpoints_deleted") if names else []
        if receivers:
            paths = [files.join(directory, name) for name in names]
            gone = [path for path in paths if not files.exists(path)]
            for receive in receivers:
                receive(gone)

    # -- Lightning's events ----------------------------------------------------------------

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write due files by iteration, unless a validation follows; raise the thread's error."""
        if self._background is not None:
            self._background.raise_error()
        if self._due is None or progress.validates_next(trainer):
            return
        if not progress.is_last_batch(trainer):  # a resume would go back to the old pass
            self._write(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files within an epoch, unless the epoch is about to end."""
        if self._due is not None and not progress.epoch_is_over(trainer):
            self._write(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files, after all other callbacks and the module."""
        if self._due is not None:
            self._write(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread."""
        if self._background is not None:
            try:
                self._background.wait()
            finally:  # no rank may look for the last file earlier
                trainer.strategy.barrier("CheckpointWriter.on_train_end")

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the thread; log its error, which would hide the exception if raised."""
        try:
            if self._background is not None:
                self._background.wait()
        except Exception:
            Driver.of(trainer).runner.logger.exception("A checkpoint was not written")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the thread."""
        if self._background is not None:
            self._background.wait()


def report_other_runs(
    directory: str, run: str, template: str | None = None, *, by_word: bool = True
) -> str:
    """Describe other runs' files in a directory, with advice; empty without any.

    Args:
        directory: The directory, local or remote.
        run: The run that begins.
        template: The file names of the run, to report unlisted files of equal names; None for
            listed files only.
        by_word: Whether ``ckpt_path="last"`` finds the files.
    """
    listed = manifest.read(directory)
    others = [entry for entry in listed if entry.run != run]
    found: dict[str, list[str]] = {}
    for owner, name in dict.fromkeys((f"run {entry.run}", entry.name) for entry in others):
        if files.exists(files.join(directory, name)):
            found.setdefault(owner, []).append(name)
    if template is not None:
        known = {entry.name for entry in listed}
        numbers = {n: name for name, n in numbered(directory, template) if name not in known}
        if numbers:
            found["a run without a list"] = [numbers[number] for number in sorted(numbers)]
    if not found:
        return ""
    of_each = "; ".join(f"{_shortened(names)} of {owner}" for owner, names in found.items())
    path = files.join(directory, next(reversed(found.values()))[-1])
    way = f'"last"), or ckpt_path="{path}"' if by_word else f'"{path}")'
    return (
        f"{directory} holds checkpoints of another run: {of_each}. This run deletes none of them, "
        "but overwrites those whose names it uses. To go on with a run write "
        f"trainer.fit(..., ckpt_path={way}; to keep all files give this run another directory: "
        "CheckpointHook(out_dir=...), HookAdapter(work_dir=...) or Trainer(default_root_dir=...)"
    )


def _shortened(names: list[str]) -> str:
    """Join names; shorten a long list to the first and the last.

    >>> _shortened(["a", "b"]), _shortened(["a", "b", "c", "d"])
    ('a, b', 'a ... d (4 files)')
    """
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)} files)"
