"""``CheckpointFile``: a checkpoint that is about to be written, or that was just read."""

from __future__ import annotations

import dataclasses
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

__all__ = ["CheckpointFile"]


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint of a Trainer, for ``_add_to_file`` and ``_take_from_file`` of a hook.

    Args:
        contents: Lightning's dict; changes of the dict are changes of the file.
        own_part: The part of this package, ``contents["lightning_hooks"]``.
        trainer: The Trainer that writes or has read the file.
        in_parts: Whether the strategy writes each rank's part, into a directory.
    """

    contents: dict[str, Any]
    own_part: dict[str, Any]
    trainer: L.Trainer
    in_parts: bool

    @property
    def module(self) -> L.LightningModule:
        """The module whose weights are in the file."""
        return self.trainer.lightning_module

    @property
    def is_whole(self) -> bool:
        """Whether the file has the states of callbacks and optimizers, not the weights alone."""
        return "callbacks" in self.contents

    @property
    def resumes(self) -> bool:
        """Whether a fit is resumed from the file; otherwise the file is evaluated."""
        return self.trainer.state.fn == TrainerFn.FITTING
