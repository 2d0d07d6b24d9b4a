"""Lightning's checkpoint files, written so that a kill or a full disk leaves no broken one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from lightning.pytorch.strategies import Strategy

from lightning_hooks.storage import files, verification

__all__ = ["AtomicCheckpointIO", "replaced", "wait_for_writer", "writes_atomically"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, waits for the disk, then renames; reads what is as written.

    ``CheckpointHook`` uses it for its own files; ``Trainer(plugins=[AtomicCheckpointIO()])``
    makes every checkpoint of a Trainer so.

    Args:
        write: What writes a checkpoint to a path, instead.
        for_fit: Asked when a file is read: whether a run is to go on from it.

    Note:
        Lightning's own writes to a temporary directory and moves the file: on another file
        system a kill in the move leaves half a file under the final name. It reads what is
        there, also with a flipped bit.
    """

    def __init__(
        self,
        write: Callable[[dict[str, Any], str], None] = files.save_torch,
        for_fit: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()
        self._write = write
        self._for_fit = for_fit

    @property
    def knows_fit(self) -> bool:
        """Whether it can tell a file that a run is to go on from."""
        return self._for_fit is not None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint to a local or remote path."""
        if storage_options is not None:
            raise TypeError(
                f"{type(self).__name__} takes no storage_options, got {storage_options!r}"
            )
        self._write(checkpoint, os.fspath(path))

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint; with ``weights_only`` of None too, nothing in it is executed.

        Raises:
            FileNotFoundError: if there is no such file.
            DamagedCheckpointError: if it is not as it was written.
            WeightsOnlyError: if a run is to go on from it and cannot.
        """
        path = os.fspath(path)
        checkpoint = verification.load(path, map_location, weights_only is not False)
        if self._for_fit is not None and self._for_fit():
            verification.require_resumable(path, checkpoint)
        return checkpoint


def replaced(strategy: Strategy, io: AtomicCheckpointIO) -> Callable[[], None] | None:
    """Have a strategy read and write with ``io``; return what takes it back.

    A ``CheckpointIO`` that the user has given the Trainer stays, and so do the directories of
    strategies that write one file per rank: the answer is None then.
    """
    own = strategy.checkpoint_io
    if not _is_plain(own):
        return None
    strategy.checkpoint_io = io

    def restore() -> None:
        strategy.checkpoint_io = own

    return restore


@contextlib.contextmanager
def writes_atomically(
    strategy: Strategy, write: Callable[[dict[str, Any], str], None] = files.save_torch
) -> Iterator[None]:
    """Have a strategy write with ``write`` inside the block, where :func:`replaced` can.

    Also in place of Lightning's ``AsyncCheckpointIO`` around its own writer: that does not tell
    when a file is whole.
    """
    own = strategy.checkpoint_io
    inner = own.checkpoint_io if type(own) is AsyncCheckpointIO else own
    if _is_plain(inner):
        strategy.checkpoint_io = AtomicCheckpointIO(write)
    try:
        yield
    finally:
        strategy.checkpoint_io = own


def wait_for_writer(strategy: Strategy) -> None:
    """Wait until a user's ``AsyncCheckpointIO`` has written everything, and raise its error."""
    own = strategy.checkpoint_io
    if isinstance(own, AsyncCheckpointIO):
        own.teardown()  # its thread comes again with the next file


def _is_plain(io: Any) -> bool:
    return type(io) in (TorchCheckpointIO, AtomicCheckpointIO)
