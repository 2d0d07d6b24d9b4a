"""``UploadsCheckpoints``: the base of trackers that send checkpoints too."""

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
"""The hooks that write the files, by ``upload``."""


class UploadsCheckpoints(TrackerHook):
    """A tracker that sends checkpoints of the run's hooks, by the way of its values.

    A checkpoint that is on the disk waits beside the spool, whatever becomes of the file itself;
    the thread sends it. What is deleted here is deleted there. ``writer_class`` defines
    ``send_checkpoint`` and ``delete_checkpoint``.

    Args:
        arguments: Those of the next class.
        upload: ``"best"``, ``"last"``, ``"all"``, or None for no checkpoints.
        options: Those of the next class.
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
        """Open the session; warn if no hook writes what is to be sent."""
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
        """Note files that are to be deleted there too, when the next one is there."""
        if self.upload is not None:
            self._deleted += paths

    def on_checkpoint_saved(self, path: str) -> None:
        """Have a file sent, if it is one of those that are; see ``CheckpointWriter``."""
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
        """Return the iterations done in a file, and the file as it waits, by its name there."""
        step, directory, name = int(self._runner.iter), *os.path.split(path)
        if not os.path.isfile(path):
            self._warn(
                f"{path} is not sent, as it is no file on this machine: on_saved=..., a function "
                "of the path, can send folders of shards and remote files"
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
        """Return ``"last"``, ``"best"`` and ``"best_<key>"``, as far as they hold for a file."""
        messages = (self._runner.meta or {}).get("hook_msgs", {})
        ends = {name: name.replace("_ckpt", "", 1) for name in messages}
        kinds = ("best_ckpt", "last_ckpt")
        return [as_label(ends[n]) for n in messages if n.startswith(kinds) and messages[n] == path]

    def _append(self, step: int, found: Mapping[str, Upload]) -> None:
        """Append a record of what is to be sent, and then to be deleted."""
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
        """Close the run, with its files; the last checkpoint is written by now."""
        if self.upload is not None:
            for error in self._close_all(Driver.of(trainer).runner):
                raise error

    def _warn(self, text: str) -> None:
        self._runner.logger.warning("%s: %s", type(self).__name__, text)


def _label_of(path: str) -> str:
    return as_label(os.path.basename(path))
