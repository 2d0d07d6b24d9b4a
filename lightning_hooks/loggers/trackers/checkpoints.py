"""``UploadsCheckpoints``: the base of trackers with checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.loggers.delivery.upload import Upload, as_label
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Names
from lightning_hooks.storage import manifest
from lightning_hooks.utils.arguments import check_choice

__all__ = ["UPLOADS", "UploadsCheckpoints"]

UPLOADS = {
    "best": "BestCheckpointHook(...) or CheckpointHook(save_best=...)",
    "last": "CheckpointHook(...)",
    "all": "CheckpointHook(...) or BestCheckpointHook(...)",
}
"""The hooks to add, by ``upload``."""


class UploadsCheckpoints(TrackerHook):
    """A tracker for values and for checkpoints of the run's hooks.

    A complete checkpoint is linked or copied beside the spool, independently of the original file,
    and sent by the thread for values. Deleting a checkpoint deletes the tracker's copy too.
    ``writer_class`` defines ``send_checkpoint`` and ``delete_checkpoint``.

    Args:
        arguments: Arguments of the next class.
        upload: ``"best"``, ``"last"``, ``"all"``, or None for no checkpoints.
        options: Options of the next class.
    """

    transient: tuple[str, ...] = (*TrackerHook.transient, "_runner")
    _runner: Any = None

    def __init__(self, *arguments: Any, upload: str | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if upload is not None:
            check_choice("upload", upload, [*UPLOADS])
        self.upload = upload
        self._deleted: list[str] = []  # paths, until the next record of checkpoints
        self._sent: set[str] = set()  # names, by this process
        self._names = Names(_label_of, 120)

    def before_run(self, runner: Any) -> None:
        """Open the session; warn if no hook writes the wanted checkpoints."""
        super().before_run(runner)
        self._runner, self._sent = runner, set()
        if self.upload is None or self._session is None:
            return
        writers = [h for h in runner.hooks if getattr(h, "keeps", "") and h.writes_files]
        nothing = f"upload={self.upload!r} sends nothing, as"
        if runner.writes_mmcv_files:
            self._warn(f"{nothing} this runner writes files of mmcv's own layout")
        elif not any(self.upload in (hook.keeps, "all") for hook in writers):
            self._warn(f"{nothing} no hook writes such a file: add {UPLOADS[self.upload]}")
        self._append(runner.iter, {})

    def on_checkpoints_deleted(self, paths: Sequence[str]) -> None:
        """Note deleted files; the tracker deletes its copies after the next checkpoint."""
        if self.upload is not None:
            self._deleted += paths

    def on_checkpoint_saved(self, path: str) -> None:
        """Queue a saved file, if wanted by ``upload``."""
        if self.upload is None or self._session is None:
            return
        aliases = self._aliases(path)
        is_wanted = self.upload == "all" or any(a.startswith(self.upload) for a in aliases)
        if not self._peers:
            self._warn(f"{path} is not sent: it was written after the end of the run")
        elif is_wanted:
            self._append(*self._staged(path.removeprefix("file://"), aliases, self._session.folder))
        else:
            self._append(int(self._runner.iter), {})

    def _staged(
        self, path: str, aliases: Sequence[str], folder: str
    ) -> tuple[int, dict[str, Upload]]:
        """Return a file's number of iterations, and the file to send by name in the tracker."""
        step, directory, name = int(self._runner.iter), *os.path.split(path)
        if not os.path.isfile(path):
            self._warn(
                f"{path} is not sent, because it is no local file: on_saved=..., a function of "
                "the path, can send folders of shards and remote files"
            )
            return step, {}
        listed = (entry.iter for entry in reversed(manifest.read(directory)) if entry.name == name)
        label = self._names.of(path)
        try:
            upload = Upload.staged(path, folder, label, aliases)
        except OSError as error:
            self._warn(f"{path} is not sent ({type(error).__name__}: {error})")
            return step, {}
        return next(listed, step), {label: upload}

    def _aliases(self, path: str) -> list[str]:
        """Return the aliases of a file, among ``"last"``, ``"best"`` and ``"best_<key>"``."""
        messages = (self._runner.meta or {}).get("hook_msgs", {})
        ends = {name: name.replace("_ckpt", "", 1) for name in messages}
        kinds = ("best_ckpt", "last_ckpt")
        return [as_label(ends[n]) for n in messages if n.startswith(kinds) and messages[n] == path]

    def _append(self, step: int, found: Mapping[str, Upload]) -> None:
        """Append a record of checkpoints to send, followed by checkpoints to delete."""
        gone: dict[str, None] = {}
        while self._deleted:
            path = self._deleted.pop().removeprefix("file://")
            name = self._names.of(path)
            is_there = name in self._sent or self._tracked.after is not None
            if is_there and not os.path.lexists(path):
                gone[name] = None
        self._sent |= found.keys()
        self._sent -= gone.keys()
        if self._session is not None and (found or gone):
            self._session.append_checkpoints(step, {**found, **gone})

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Send the files and close the run, after the last checkpoint."""
        if self.upload is not None:
            for error in self._close_all(Driver.of(trainer).runner):
                raise error

    def _warn(self, text: str) -> None:
        self._runner.logger.warning("%s: %s", type(self).__name__, text)


def _label_of(path: str) -> str:
    return as_label(os.path.basename(path))
