"""``CheckpointUploads``: send the checkpoints of a run's hooks to a tracker."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.loggers.delivery.session import Session
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.delivery.upload import Upload, as_label
from lightning_hooks.loggers.trackers.inputs import Names
from lightning_hooks.storage import manifest
from lightning_hooks.utils.arguments import check_choice
from lightning_hooks.utils.secrets import describe

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["UPLOADS", "CheckpointUploads"]

UPLOADS = {
    "best": "BestCheckpointHook(...) or CheckpointHook(save_best=...)",
    "last": "CheckpointHook(...)",
    "all": "CheckpointHook(...) or BestCheckpointHook(...)",
}
"""The hooks to add, by ``upload``."""


class CheckpointUploads:
    """Queues checkpoints of the run's hooks for a tracker.

    A complete checkpoint is linked or copied beside the spool, independently of the original file,
    and sent by the thread for values. Deleting a checkpoint deletes the tracker's copy too.

    Args:
        which: ``"best"``, ``"last"`` or ``"all"``.

    Raises:
        ValueError: for another ``which``.
    """

    _runner: Runner
    _session: Session

    def __init__(self, which: str) -> None:
        check_choice("upload", which, [*UPLOADS])
        self._which = which
        self.deleted: list[str] = []
        """Paths of deleted files, until the next record of checkpoints."""
        self._sent: set[str] = set()  # names, by this process
        self._names = Names(lambda path: as_label(os.path.basename(path)), 120)
        self._continues = False

    def __reduce__(self) -> Any:  # without the run
        return CheckpointUploads, (self._which,)

    def begin(self, runner: Runner, session: Session, run: TrackedRun) -> None:
        """Begin a run; warn if no hook writes the wanted checkpoints."""
        self._runner, self._session, self._sent = runner, session, set()
        self._continues = run.after is not None
        saving = natives_with("_kept_kinds", runner.hooks)
        kinds = {kind for hook in saving for kind in hook._kept_kinds}
        nothing = f"upload={self._which!r} sends nothing, as"
        if runner.no_uploads:
            self._warn(f"{nothing} {runner.no_uploads}")
        elif not (kinds if self._which == "all" else self._which in kinds):
            self._warn(f"{nothing} no hook writes such a file: add {UPLOADS[self._which]}")
        self._append(runner.iter, {})

    def send(self, path: str, *, is_late: bool) -> None:
        """Queue a saved file if wanted, and the deletion of deleted files.

        Args:
            path: The file.
            is_late: Whether the run has ended.
        """
        aliases = self._aliases(path)
        if is_late:
            self._warn(f"{path} is not sent: it was written after the end of the run")
        elif self._which == "all" or any(a.startswith(self._which) for a in aliases):
            self._append(*self._staged(path.removeprefix("file://"), aliases))
        else:
            self._append(int(self._runner.iter), {})

    def _staged(self, path: str, aliases: Sequence[str]) -> tuple[int, dict[str, Upload]]:
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
            upload = Upload.staged(path, self._session.folder, label, aliases)
        except OSError as error:
            self._warn(f"{path} is not sent ({describe(error)})")
            return step, {}
        return next(listed, step), {label: upload}

    def _aliases(self, path: str) -> list[str]:
        """Return the aliases of a file, among ``"last"``, ``"best"`` and ``"best_<key>"``."""
        messages = (self._runner.meta or {}).get("hook_msgs", {})
        ends = {name: name.replace("_ckpt", "", 1) for name in messages}
        kinds = ("best_ckpt", "last_ckpt")
        return [as_label(ends[n]) for n in messages if n.startswith(kinds) and messages[n] == path]

    def _append(self, step: int, new: Mapping[str, Upload]) -> None:
        """Append a record of checkpoints to send, followed by checkpoints to delete."""
        gone: dict[str, None] = {}
        while self.deleted:
            path = self.deleted.pop().removeprefix("file://")
            name = self._names.of(path)
            if (name in self._sent or self._continues) and not os.path.lexists(path):
                gone[name] = None
        self._sent |= new.keys()
        self._sent -= gone.keys()
        if new or gone:
            self._session.append(step, checkpoints={**new, **gone})

    def _warn(self, text: str) -> None:
        self._session.notices.log(logging.WARNING, text)
