"""Lightning's checkpoint files, written so that a kill or a full disk leaves no broken one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import Strategy

from lightning_hooks import files

__all__ = ["AtomicCheckpointIO", "writes_atomically"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, waits for the disk, then renames.

    ``CheckpointHook`` uses it for its own files; ``Trainer(plugins=[AtomicCheckpointIO()])``
    makes every checkpoint of a Trainer so.

    Note:
        Lightning's own writes to a temporary directory and moves the file: on another file
        system a kill in the move leaves half a file under the final name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint to a local or remote path."""
        if storage_options is not None:
            raise TypeError(
                f"{type(self).__name__} takes no storage_options, got {storage_options!r}"
            )
        files.save_torch(checkpoint, os.fspath(path))


@contextlib.contextmanager
def writes_atomically(strategy: Strategy) -> Iterator[None]:
    """Have a strategy write atomically inside the block.

    A ``CheckpointIO`` that the user has given the Trainer stays, and so do the directories of
    strategies that write one file per rank.
    """
    own = strategy.checkpoint_io
    if type(own) is not TorchCheckpointIO:
        yield
        return
    strategy.checkpoint_io = AtomicCheckpointIO()
    try:
        yield
    finally:
        strategy.checkpoint_io = own
