"""Write a hook's checkpoints, and delete superseded ones: ``CheckpointStore``."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.loggers import Logger

from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import entry_point, precision
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.directory import directory_of, report_other_runs
from lightning_hooks.storage import checkpoints, files, manifest, shards
from lightning_hooks.storage.background_save import BackgroundSaver
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO, wait_for_writer, writes_for
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.handover import Handover
from lightning_hooks.storage.manifest import ChooseOld
from lightning_hooks.utils import ranks
from lightning_hooks.utils.arguments import check_bool, check_function
from lightning_hooks.utils.fsdp import shares_state
from lightning_hooks.utils.secrets import describe
from lightning_hooks.utils.warn import warn

__all__ = ["CheckpointStore"]


class CheckpointStore:
    """A hook's checkpoints: writes, lists and deletes the files of a directory.

    Args:
        background: Whether a thread writes the files, of each rank with a part of them.
        on_saved: A function of the path, called on rank 0 for each file on the disk.

    Raises:
        TypeError: for an argument of the wrong type.
    """

    runner: Any = None
    """The last run, to find its files after the fit too."""
    in_parts: bool = False
    """Whether each rank writes a part of a checkpoint, into a directory."""
    path: str = ""
    """The directory of the last run."""
    elsewhere: str = ""
    """The directory of a fit in another process, until the first fit in this process."""
    template: str = ""
    """The file names, with ``{}`` for a number; empty for names with a score."""
    create_symlink: bool | None = False
    """Whether ``latest.pth`` leads to the last file; None for local directories."""
    save_optimizer: bool = True
    resumed_from: str | None = None
    """The file that the present fit goes on from; None for a new run."""
    _earlier: frozenset[Entry] = frozenset()
    """The files listed when the run began."""
    reported: str = ""
    """The last run that other runs' files were reported to."""
    written: tuple[str, int] = ("", 0)
    """Path and iteration of the fit's last file."""
    _owner: Any = None
    """The hook, shown to Lightning's loggers as a ``ModelCheckpoint``; a weak reference."""

    def __init__(
        self, background: bool = False, on_saved: Callable[[str], object] | None = None
    ) -> None:
        check_bool(background=background)
        check_function("on_saved", on_saved)
        self.on_saved = on_saved
        self.background, self.thread = background, BackgroundSaver()
        self.handover = Handover()

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("runner", "_owner", "elsewhere")
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**kept, "handover": self.handover.of_copy()}

    # -- the directory ---------------------------------------------------------------------

    def begin(self, runner: Runner, owner: Any) -> None:
        """Keep a run, and the directory of the run's files by mmcv's rule for ``out_dir``.

        Args:
            runner: The run.
            owner: The hook, with ``out_dir``.
        """
        self.runner, self._owner = runner, weakref.proxy(owner)
        self.path = directory_of(owner.out_dir, runner.work_dir)
        self.written = "", 0

    def open(self, beside: Sequence[CheckpointStore], *, make: bool) -> None:
        """Check and make the directory of the run, so that errors come before training.

        Other runs' files in the directory are a warning, once in a run.

        Args:
            beside: The stores of the run.
            make: Whether to make the directory.

        Raises:
            FileExistsError: for other runs' files, if ``ckpt_path="last"`` has found no file.
        """
        runner = self.runner
        self.in_parts = precision.writes_directories(runner.trainer.strategy)
        if self.in_parts:  # each rank writes to rank 0's directory, whatever its own is
            self.path = runner.trainer.strategy.broadcast(self.path)
        directory = self.path
        self._check_strategy()
        if not runner.is_writer:
            return
        begun = [store.path for store in beside if store.reported == runner.run_id]
        entries, self.reported = manifest.read(directory), runner.run_id
        self._earlier = frozenset(entries)
        if directory not in begun:
            resumed, template = self.resumed_from, self.template
            if resumed and files.join(directory, os.path.basename(resumed)) == resumed:
                template = ""  # unlisted files beside the file resumed from belong to this run
            report = report_other_runs(entries, directory, runner.run_id, template)
            if report and not resumed and entry_point.asks_for_last(runner.trainer):
                raise FileExistsError(f'ckpt_path="last" has found no checkpoint to load. {report}')
            if report:
                runner.logger.warning("%s", report)
        if make:
            if files.is_local(directory):
                files.make_directory(directory)
            files.require_writable(directory)

    def _check_strategy(self) -> None:
        """Raise before the first step if the strategy cannot write the files.

        Raises:
            ValueError: for a remote directory, if checkpoints are directories; for the optimizer's
                state, if torch cannot assign the state to parameters.
        """
        trainer = self.runner.trainer
        name = type(trainer.strategy).__name__
        if self.in_parts:
            if not files.is_local(self.path):
                raise ValueError(
                    f"{name} writes checkpoints as directories, and local ones only, not "
                    f"{self.path}: give a local out_dir, and take them elsewhere with on_saved"
                )
        elif self.save_optimizer and trainer.model is not None and shares_state(trainer.model):
            raise ValueError(
                f"{name} with use_orig_params=False cannot write the optimizer's state into one "
                'file: give use_orig_params=True, state_dict_type="sharded", or '
                "CheckpointHook(save_optimizer=False)"
            )

    def clean_up(self, series: str, choose_old: ChooseOld | None, resumed_at: int) -> None:
        """Delete leftovers of killed processes, and superseded files; on rank 0."""
        runner = self.runner
        if runner.is_writer:
            self._report_deleted(
                checkpoints.clean_up(self.path, runner.run_id, series, choose_old, resumed_at)
            )

    # -- writing ---------------------------------------------------------------------------

    def target(
        self,
        name: str,
        series: str,
        choose_old: ChooseOld | None,
        score: float | None = None,
        rule: str | None = None,
    ) -> Target:
        """Return the place of the run's next file."""
        if self.background:  # what is told of the file before names that file
            self.thread.wait()
        return Target(
            self.path,
            name,
            self.runner.run_id,
            series,
            resumable=self.save_optimizer,
            is_latest=self.create_symlink is not False,
            score=score,
            rule=rule,
            earlier=self._earlier,
            choose_old=choose_old,
        )

    def write(self, target: Target, line: str, after: Sequence[CheckpointStore] = ()) -> None:
        """Write a Lightning checkpoint with mmcv's ``meta``, on all ranks together.

        Args:
            target: The place of the file, from :meth:`target`.
            line: Logged on rank 0 when the new file is on the disk; for a file with a score, with
                the names of deleted files.
            after: Stores with files that must be on the disk before.
        """
        trainer = self.runner.trainer
        weights = precision.weights_among_parts(trainer.strategy) if self.background else None
        if weights is not None:
            self._write_parts(target, line, after, weights)
        else:
            self._write_whole(target, line, after)
        self.written = target.path, self.runner.iter

    def _write_whole(self, target: Target, line: str, after: Sequence[CheckpointStore]) -> None:
        """Write a file, or have the strategy write; see :meth:`write`."""
        trainer = self.runner.trainer
        taken: list[str] = []

        def save(checkpoint: dict[str, Any]) -> None:
            for other in after:
                other.thread.join()
            self._report(target, line, checkpoints.save(checkpoint, target))

        def take(checkpoint: dict[str, Any], path: str) -> None:
            taken.append(path)
            if self.background:
                self.thread.save(checkpoint, save, path)
            else:
                save(checkpoint)

        replaces = writes_for(trainer.strategy)
        io = {"checkpoint_io": AtomicCheckpointIO(take)} if replaces else {}
        with setting(trainer.strategy, **io):
            trainer.save_checkpoint(target.path, weights_only=not target.resumable)
        crc32 = _checksum_of_parts(trainer, target.path) if self.in_parts else None
        if trainer.is_global_zero and not taken:
            self._report(target, line, self._record(target, crc32))
        if self.in_parts:  # no rank may look for the file earlier
            trainer.strategy.barrier("write_checkpoint")

    def _write_parts(
        self, target: Target, line: str, after: Sequence[CheckpointStore], weights: str
    ) -> None:
        """Write a directory in the background, a part of each rank; see :meth:`write`."""
        trainer = self.runner.trainer

        def take(checkpoint: dict[str, Any], path: str, storage_options: Any = None) -> None:
            meta, group = checkpoint["meta"], self.thread.group()
            wait_for_parts = shards.begin_save(checkpoint, weights, path, trainer.world_size, group)

            def finish() -> None:
                wait_for_parts()
                crc32 = _checksum_of_parts(trainer, path, group)
                for other in after:
                    other.thread.join()
                if trainer.is_global_zero:
                    self._report(target, line, checkpoints.record(target, meta, crc32=crc32))

            self.thread.call(finish, path)

        with (
            precision.state_stays_on_device(trainer.strategy),
            setting(trainer.strategy, save_checkpoint=take),
        ):
            trainer.save_checkpoint(target.path, weights_only=not target.resumable)

    def _record(self, target: Target, crc32: str | None) -> list[str]:
        """List a file that a user's ``CheckpointIO``, or a strategy with a file per rank, wrote."""
        strategy = self.runner.trainer.strategy
        wait_for_writer(strategy)
        if self.background:
            warn(
                f"background=True has no effect: {type(strategy).__name__} with "
                f"{type(strategy.checkpoint_io).__name__} writes the checkpoints, while the "
                "training waits",
            )
        meta = {"epoch": self.runner.epochs_done, "iter": self.runner.iterations_done}
        return checkpoints.record(target, meta, crc32=crc32)

    def claim(self, target: Target, others: Sequence[CheckpointStore]) -> bool:
        """Keep a file just written by another store of the same names; return False without any."""
        written = target.path, self.runner.iter
        for other in others:
            if other.written == written and other.save_optimizer >= self.save_optimizer:
                other.thread.wait()
                self.written = written
                if self.runner.trainer.is_global_zero:
                    self._report_deleted(checkpoints.claim(target))
                    if self.on_saved is not None:
                        self.on_saved(target.path)
                return True
        return False

    def _report(self, target: Target, line: str, deleted: Sequence[str]) -> None:
        """Log a new file, and pass its path to the hooks, after the paths of deleted files."""
        removed = f"; removed {', '.join(deleted)}" if deleted and target.score is not None else ""
        self.runner.logger.info("%s%s", line, removed)
        self._report_deleted(deleted)
        if files.exists(target.path):  # a user's writer may not have finished
            if self.on_saved is not None:
                self.on_saved(target.path)
            for logger in self.runner.trainer.loggers:
                self._show_to(logger)
            for hook in natives_with("on_checkpoint_saved", self.runner.hooks):
                hook.on_checkpoint_saved(target.path)

    def _show_to(self, logger: Logger) -> None:
        """Call a logger of Lightning's as a ``ModelCheckpoint`` does, in the writing thread."""
        try:
            logger.after_save_checkpoint(self._owner)
        except Exception as error:
            self.runner.logger.warning(
                "%s: %s.after_save_checkpoint() raised %s; training goes on",
                *(self._owner.__class__.__name__, type(logger).__name__, describe(error)),
            )

    def _report_deleted(self, names: Sequence[str]) -> None:
        """Pass the paths of deleted files to the hooks."""
        hooks = natives_with("on_checkpoints_deleted", self.runner.hooks) if names else []
        if hooks:
            paths = [files.join(self.path, name) for name in names]
            gone = [path for path in paths if not files.exists(path)]
            for hook in hooks:
                hook.on_checkpoints_deleted(gone)


def _checksum_of_parts(trainer: L.Trainer, path: str, group: Any = None) -> str | None:
    """Return the checksum of a directory on rank 0; each rank reads its own parts. Collective."""
    own = shards.parts(path, trainer.global_rank, trainer.world_size)
    of_ranks = ranks.collected(own, trainer.world_size, group)
    return shards.checksum(part for parts in of_ranks for part in parts)
