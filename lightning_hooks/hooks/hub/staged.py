"""Files that wait to be pushed, in folders beside the checkpoints."""

from __future__ import annotations

import glob
import os
import shutil
from typing import NamedTuple

from lightning_hooks.storage import manifest, staging
from lightning_hooks.storage.entry import Entry

__all__ = ["Staged", "left_in", "stage"]

PREFIX = "hub_push_"
"""The beginning of the folders' names."""


class Staged(NamedTuple):
    """A checkpoint in a folder of its own, with what is pushed with it."""

    folder: str
    file: str
    """Its name there, and in the repository."""
    entry: Entry | None
    """Its entry in the list of checkpoints."""
    metric: str = ""
    """The name of its score."""

    @property
    def caption(self) -> str:
        """What it is: "best checkpoint (accuracy 0.98), after epoch 3 and iteration 9"."""
        text = f"{os.path.splitext(self.file)[0]} checkpoint"
        if self.entry is None:
            return text
        score = "" if self.entry.score is None else f" ({self.metric} {self.entry.score:.6g})"
        return f"{text}{score}, after epoch {self.entry.epoch} and iteration {self.entry.iter}"

    def discard(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def stage(path: str, name: str, metric: str = "score") -> Staged:
    """Put a checkpoint into a new folder beside it, where it stays when it is deleted.

    Args:
        path: The checkpoint.
        name: Its new name, without the ending.
        metric: The name of its score.

    Raises:
        OSError: if that is not possible.
    """
    directory, old_name = os.path.split(path)
    entries = {entry.name: entry for entry in manifest.read(directory)}
    file = name + os.path.splitext(path)[1]
    target = staging.stage(path, directory, PREFIX, file)
    return Staged(os.path.dirname(target), file, entries.get(old_name), metric)


def left_in(directory: str) -> list[str]:
    """Return the folders that another run has left in a directory."""
    return sorted(glob.glob(os.path.join(glob.escape(directory), f"{PREFIX}*")))
