"""``CheckpointHook`` that writes mmcv's files at mmcv's points."""

from __future__ import annotations

import os
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving import last as native
from lightning_hooks.standin._hooks.adjusted import only_if, under_mmcv
from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.standin.utils.dist import allreduce_params, master_only

__all__ = ["CheckpointHook", "client_and_directory"]


def client_and_directory(
    runner: Runner, out_dir: str | None, file_client_args: dict[str, Any] | None
) -> tuple[FileClient, str]:
    """Return the storage and the directory of a hook's files.

    In an ``out_dir`` the directory has the last name of the work directory.
    """
    directory = out_dir or runner.work_dir
    client = FileClient.infer_client(file_client_args, directory)
    if directory != runner.work_dir:
        last = os.path.basename(runner.work_dir.rstrip(os.sep))
        directory = client.join_path(directory, last)
    return client, directory


_in_fit_of_runner = only_if(lambda hook, trainer: Driver.of(trainer).runner.loops_itself)
"""Decorate an event of a fit by one of the stand-in's runners; else the inherited is called."""


class CheckpointHook(native.CheckpointHook):
    """Call ``runner.save_checkpoint`` at mmcv's points, under the stand-in's runners.

    In a Trainer the hook behaves as :class:`lightning_hooks.CheckpointHook`.

    Args:
        interval: Epochs or iterations between files; -1 writes only the last file.
        by_epoch: Whether the interval counts epochs, else iterations.
        save_optimizer: Whether the optimizer's state is saved, so that the run can be resumed.
        out_dir: The parent of the files' directory, which has the work directory's name; None
            writes to the work directory.
        max_keep_ckpts: Maximum number of files kept; -1 keeps all.
        save_last: Whether a file is written at the end of training, regardless of the interval.
        sync_buffer: Whether buffers are averaged over the ranks before saving.
        file_client_args: The storage; by default determined by the path.
        **saving: Arguments of ``runner.save_checkpoint``: ``filename_tmpl``, ``create_symlink``,
            ``meta``.

    Source: mmcv's ``CheckpointHook``, reproduced.

    Note:
        Departure from mmcv: a further run keeps the directory in an ``out_dir``, also that of
        ``EvalHook`` (mmcv appends the work directory's name again).
    """

    file_client: Any = None
    args: dict[str, Any] = {}  # noqa: RUF012  # for subclasses without super().__init__()
    _out_dir_given: str | None = None

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
        **saving: Any,
    ) -> None:
        super().__init__(
            interval, by_epoch, save_optimizer, out_dir, max_keep_ckpts, save_last, sync_buffer,
            **{name: value for name, value in saving.items() if name == "create_symlink"},
        )  # fmt: skip
        self.args = saving
        if saving.get("filename_tmpl"):
            self._last.store.template = saving["filename_tmpl"]
        self.file_client_args = file_client_args
        self._out_dir_given = self.out_dir

    @under_mmcv
    def before_run(self, runner: Runner) -> None:
        """Choose the directory and the storage of the files."""
        place = client_and_directory(runner, self._out_dir_given, self.file_client_args)
        self.file_client, self.out_dir = place
        name = self.file_client.name
        runner.logger.info(f"Checkpoints will be saved to {self.out_dir} by {name}.")
        links = self.file_client.allow_symlink
        self.args = {
            **self.args,
            "create_symlink": self.args.get("create_symlink", links) and links,
        }

    @under_mmcv
    def after_train_epoch(self, runner: Runner) -> None:
        """Write a checkpoint if the epoch is due."""
        due = self.every_n_epochs(runner, self.interval)
        if self.by_epoch and (due or (self.save_last and self.is_last_epoch(runner))):
            self._save(runner, f"{runner.epoch + 1} epochs")

    @under_mmcv
    def after_train_iter(self, runner: Runner) -> None:
        """Write a checkpoint if the iteration is due."""
        if self.by_epoch:
            return
        due = self.every_n_iters(runner, self.interval)
        if due or (self.save_last and self.is_last_iter(runner)):
            self._save(runner, f"{runner.iter + 1} iterations")

    @_in_fit_of_runner
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Do nothing: ``before_run`` has chosen the directory."""

    @_in_fit_of_runner
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Do nothing: the last file is written at mmcv's point."""

    @_in_fit_of_runner
    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Do nothing: no directory is open."""

    def _save(self, runner: Runner, when: str) -> None:
        runner.logger.info(f"Saving checkpoint at {when}")
        if self.sync_buffer:
            allreduce_params(runner.model.buffers())
        self._save_checkpoint(runner)

    @master_only
    def _save_checkpoint(self, runner: Runner) -> None:  # type: ignore[override]  # mmcv's name for it
        client, directory = self.file_client, self.out_dir
        if client is None:  # a subclass saves in a Trainer, at moments of its own
            client, directory = client_and_directory(runner, directory, self.file_client_args)
        assert directory is not None  # before_run or the line before has chosen the directory
        runner.save_checkpoint(directory, save_optimizer=bool(self.save_optimizer), **self.args)
        number = runner.epoch + 1 if self.by_epoch else runner.iter + 1
        default = "epoch_{}.pth" if self.by_epoch else "iter_{}.pth"
        template = self.args.get("filename_tmpl", default)

        def path_of(count: int) -> str:
            return str(client.join_path(directory, template.format(count)))

        if runner.meta is not None:
            runner.meta.setdefault("hook_msgs", {})["last_ckpt"] = path_of(number)
        if self.max_keep_ckpts <= 0:
            return
        for old in range(number - self.max_keep_ckpts * self.interval, 0, -self.interval):
            if not client.isfile(path_of(old)):
                break
            client.remove(path_of(old))
