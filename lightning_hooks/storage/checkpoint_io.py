"""Write Lightning's checkpoint files atomically, and verify files before reading."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning as L
from lightning.pytorch.plugins.io import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.storage import torch_files, verification
from lightning_hooks.utils import ranks
from lightning_hooks.utils.arguments import shown

__all__ = [
    "AtomicCheckpointIO",
    "check_reads",
    "wait_for_writer",
    "writes_for",
]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside the target, sync and rename; read intact files only.

    ``CheckpointHook`` uses it for its own files; ``Trainer(plugins=[AtomicCheckpointIO()])``
    uses it for every checkpoint of a Trainer.

    Args:
        write: Writes a checkpoint to a path; by default :func:`torch_files.save_torch`.
        for_fit: Called when a file is read; returns whether a run is resumed from the file.

    Note:
        Lightning's ``TorchCheckpointIO`` writes to a temporary directory and moves the file: on
        another file system, a kill in the move leaves half a file under the final name. A file with
        a flipped bit is read without an error.
    """

    def __init__(
        self,
        write: Callable[[dict[str, Any], str], None] = torch_files.save_torch,
        for_fit: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()
        self._write = write
        self.for_fit = for_fit
        self.readers = 1
        """How many ranks read the same file together now; rank 0 checks the file for all."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a Trainer, as part of a library's hyper-parameters, without the run's writer."""
        return AtomicCheckpointIO, ()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint to a local or remote path."""
        if storage_options is not None:
            raise TypeError(
                f"{type(self).__name__} takes no storage_options, got {shown(storage_options)}"
            )
        self._write(checkpoint, os.fspath(path))

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint; execute no code in the file, unless ``weights_only`` is False.

        Raises:
            FileNotFoundError: for a missing file.
            DamagedCheckpointError: for a damaged file.
            WeightsOnlyError: for a file without the state to resume a run, in a fit.
        """
        path = os.fspath(path)
        ranks.from_rank_0(partial(verification.check, path), self.readers)
        checkpoint = verification.load(path, map_location, weights_only is not False, checked=True)
        if self.for_fit is not None:
            verification.require_lightnings(path, checkpoint, self.for_fit())
        return checkpoint


def check_reads(
    trainer: L.Trainer,
    undo: contextlib.ExitStack,
    loading: contextlib.ExitStack,
    write: Callable[[dict[str, Any], str], None],
) -> None:
    """Have a Trainer read intact files of Lightning's layout only; a user's ``CheckpointIO`` stays.

    Args:
        trainer: The Trainer.
        undo: Puts the own ``CheckpointIO`` back.
        loading: Closed when Lightning has loaded the file of the run, on all ranks together.
        write: Writes a checkpoint to a path.
    """
    strategy, own = trainer.strategy, trainer.strategy.checkpoint_io
    if _is_replaceable(own) and getattr(own, "for_fit", None) is None:
        io = AtomicCheckpointIO(write, lambda: trainer.state.fn == TrainerFn.FITTING)
        if not strategy.restore_checkpoint_after_setup:
            io.readers = trainer.world_size
        loading.callback(setattr, io, "readers", 1)
        strategy.checkpoint_io = io
        undo.callback(setattr, strategy, "checkpoint_io", own)


def _is_replaceable(io: CheckpointIO) -> bool:
    """Return whether a ``CheckpointIO`` is Lightning's default or ours, not the user's own."""
    return type(io) in (TorchCheckpointIO, AtomicCheckpointIO)


def writes_for(strategy: Strategy) -> bool:
    """Return whether a hook may write in place of a strategy's ``CheckpointIO``.

    A user's ``CheckpointIO`` writes itself. Lightning's ``AsyncCheckpointIO`` around the default is
    replaced too, because the latter does not report complete files.
    """
    own = strategy.checkpoint_io
    inner = own.checkpoint_io if type(own) is AsyncCheckpointIO else own
    return inner is not None and _is_replaceable(inner)


def wait_for_writer(strategy: Strategy) -> None:
    """Wait until a user's ``AsyncCheckpointIO`` has written everything, and raise its error."""
    own = strategy.checkpoint_io
    if isinstance(own, AsyncCheckpointIO):
        own.teardown()
        # a new thread for the next file: early releases of Lightning 2.5 start none by themselves
        AsyncCheckpointIO.__init__(own, own.checkpoint_io)
