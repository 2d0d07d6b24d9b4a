"""When and how a native hook writes a checkpoint: where a resume from it loses nothing."""

from __future__ import annotations

import contextlib
import datetime
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import precision, progress
from lightning_hooks.engine.lightning_api.method_patch import patched
from lightning_hooks.storage import atomic_save, files, manifest
from lightning_hooks.storage.background_save import BackgroundSaver
from lightning_hooks.storage.checkpoint_io import wait_for_writer, writes_atomically
from lightning_hooks.utils.fsdp import shares_state

__all__ = ["CheckpointWriter", "Target", "check_strategy", "write_checkpoint", "write_note"]


class Target(NamedTuple):
    """Where a checkpoint goes and what it belongs to."""

    directory: str
    name: str
    """The path from the directory, with ``/``."""
    run: str
    series: str
    """See :class:`~lightning_hooks.storage.manifest.Entry`."""

    @property
    def path(self) -> str:
        """The file."""
        return files.join(self.directory, self.name)


def write_checkpoint(
    trainer: L.Trainer,
    target: Target,
    *,
    save_optimizer: bool = True,
    done: Callable[[], None],
    background: BackgroundSaver | None = None,
) -> None:
    """Write a checkpoint of Lightning's with mmcv's ``meta``, on all ranks together.

    Args:
        trainer: The Trainer, in a fit.
        target: Where to.
        save_optimizer: Whether a run can be resumed from the file.
        done: Called on rank 0 when the file is on the disk and in the manifest.
        background: What writes a copy beside the training.
    """
    own: list[str] = []

    def write(checkpoint: dict[str, Any], path: str) -> None:
        own.append(path)
        job = partial(write_note, target=target, resumable=save_optimizer, done=done)
        if background is None:
            job(checkpoint)
        else:
            background.save(checkpoint, job, path)

    with contextlib.ExitStack() as stack:
        stack.enter_context(writes_atomically(trainer.strategy, write))
        if not save_optimizer:  # Lightning then leaves callbacks out, and so mmcv's meta
            module = trainer.lightning_module
            add = partial(Driver.of(trainer).on_save_checkpoint, trainer, module)
            stack.enter_context(patched(module, "on_save_checkpoint", add))
        trainer.save_checkpoint(target.path, weights_only=not save_optimizer)
    if trainer.is_global_zero and not own:
        # a CheckpointIO of the user's, or a strategy with a file per rank, has written it
        wait_for_writer(trainer.strategy)
        if background is not None:
            writer = type(trainer.strategy.checkpoint_io).__name__
            warnings.warn(
                f"background=True has no effect: {type(trainer.strategy).__name__} with {writer} "
                "writes the checkpoints, while the training waits",
                stacklevel=2,
            )
        meta = {"epoch": trainer.current_epoch, "iter": Driver.of(trainer).runner.iter}
        _note(target, meta, save_optimizer, None, None)
        done()
    if precision.writes_directories(trainer.strategy):  # before that no rank finds it
        trainer.strategy.barrier("write_checkpoint")


def check_strategy(trainer: L.Trainer, directory: str, save_optimizer: bool) -> None:
    """Refuse before the first step what the strategy could not write.

    Raises:
        ValueError: for a directory that is not local, where checkpoints are directories; for the
            optimizer's state, where torch cannot tell whose it is.
    """
    strategy = trainer.strategy
    name = type(strategy).__name__
    if precision.writes_directories(strategy):
        if not files.is_local(directory):
            raise ValueError(
                f"{name} writes checkpoints as directories, and local ones only, not {directory}: "
                "give a local out_dir, and take them elsewhere with on_saved"
            )
    elif save_optimizer and trainer.model is not None and shares_state(trainer.model):
        raise ValueError(
            f"{name} with use_orig_params=False cannot write the optimizer's state into one file: "
            'give use_orig_params=True, state_dict_type="sharded", or '
            "CheckpointHook(save_optimizer=False)"
        )


def write_note(
    checkpoint: dict[str, Any], *, target: Target, resumable: bool, done: Callable[[], None]
) -> None:
    """Write a file, with its entry in the manifest before it appears."""
    note = partial(_note, target, checkpoint["meta"], resumable)
    if files.is_local(target.directory):
        manifest.begin(target.directory, target.run)
    atomic_save.save_announced(checkpoint, target.path, target.run, note)
    done()


def _note(
    target: Target, meta: dict[str, Any], resumable: bool, size: int | None, crc32: str | None
) -> None:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    entry = manifest.Entry(
        *(target.name, size, crc32, meta["epoch"], meta["iter"], now, target.run, target.series),
        resumable=resumable,
    )
    # an older file of the name stays in it: until the rename it is the one that is there
    manifest.update(target.directory, lambda entries: [*entries, entry])


class CheckpointWriter(Hook):
    """A hook that decides at mmcv's points what is due, and writes it when that is safe.

    By epoch that is at the end of Lightning's epoch, after its validation; by iteration at the
    end of the batch, or of the validation that follows the batch, and where the batch is the
    last of its epoch at the end of the epoch.

    A subclass writes with ``_write_file``, and calls ``_write_by`` with the arguments of its
    constructor that say how.
    """

    by_epoch: bool = True
    on_saved: Callable[[str], object] | None = None
    _due: Any = None
    """What is to be written, None for nothing; ``_write`` takes it."""
    _background: BackgroundSaver | None = None

    def _write_by(self, background: bool, on_saved: Callable[[str], object] | None) -> None:
        """Check and take the arguments.

        Args:
            background: Whether a thread writes.
            on_saved: Called with the path of each file when all is done, where it was written.
        """
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
        """Whether the thread is not done with this file, or has failed to write it."""
        return self._background is not None and self._background.is_writing(path)

    def _write(self, trainer: L.Trainer) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _write(trainer)")

    def _write_file(
        self,
        trainer: L.Trainer,
        target: Target,
        done: Callable[[], None],
        save_optimizer: bool = True,
    ) -> None:
        """Write a file as the constructor was told to; see :func:`write_checkpoint`."""

        def finish() -> None:
            done()
            if self.on_saved is not None and files.exists(target.path):
                self.on_saved(target.path)

        write_checkpoint(
            trainer,
            target,
            save_optimizer=save_optimizer,
            done=finish,
            background=self._background,
        )

    # -- Lightning's events ----------------------------------------------------------------

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write, if nothing belongs to the iteration any more."""
        if self._background is not None:
            self._background.raise_error()
        if self._due is None or progress.validates_next(trainer):
            return
        if not progress.is_last_batch(
            trainer
        ):  # from there Lightning would resume into the old pass
            self._write(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what is due by iteration, unless the epoch is about to end."""
        if self._due is not None and not self.by_epoch and not progress.epoch_is_over(trainer):
            self._write(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what is due; all other callbacks and the module are done with the epoch."""
        if self._due is not None:
            self._write(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread."""
        if self._background is not None:
            try:
                self._background.wait()
            finally:  # no rank looks for the last file before it is there
                trainer.strategy.barrier("CheckpointWriter.on_train_end")

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the thread; an error of its own here would hide the one that is raised."""
        try:
            if self._background is not None:
                self._background.wait()
        except Exception:
            Driver.of(trainer).runner.logger.exception("A checkpoint was not written")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the thread."""
        if self._background is not None:
            self._background.wait()
