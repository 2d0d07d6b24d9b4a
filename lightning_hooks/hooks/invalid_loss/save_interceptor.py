"""Whoever has the Trainer write a checkpoint: a hook is asked before, and told after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerStatus

__all__ = ["SaveGuard"]


class SaveGuard:
    """Stands for ``trainer.save_checkpoint``, on the instance, until it is removed.

    It is the one place that all writers pass, also those of weights only, of which callbacks are
    not told.

    Args:
        trainer: The Trainer.
        before: Called before a file is written; what it raises prevents that.
        after: Called with the path of each full checkpoint, when it is written.
    """

    def __init__(
        self, trainer: L.Trainer, before: Callable[[], None], after: Callable[[Any], None]
    ) -> None:
        self._trainer = trainer
        self._own = trainer.save_checkpoint
        self._before, self._after = before, after
        self._is_on = True
        self._refuses = False
        trainer.__dict__["save_checkpoint"] = self

    def __call__(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint as the Trainer does."""
        if self._refuses and self._is_ending():
            return
        if self._refuses:
            self.remove()
        if self._is_on:
            self._before()
        self._own(filepath, *args, **kwargs)
        if self._is_on and not kwargs.get("weights_only", args[0] if args else False):
            self._after(filepath)

    def refuse(self) -> None:
        """Let nobody write until the failed fit is over: some do because of the very error."""
        self._refuses = True

    def _is_ending(self) -> bool:
        state = self._trainer.state
        return state.status == TrainerStatus.INTERRUPTED and state.stage is not None

    def remove(self) -> None:
        """Give the method back; in whatever order several are removed, and more than once."""
        self._is_on = self._refuses = False
        found = self._trainer.__dict__.get("save_checkpoint")
        while isinstance(found, SaveGuard) and not (found._is_on or found._refuses):
            found = found._own
        if isinstance(found, SaveGuard):
            self._trainer.__dict__["save_checkpoint"] = found
        elif getattr(found, "__func__", None) is type(self._trainer).save_checkpoint:
            self._trainer.__dict__.pop("save_checkpoint", None)
        elif found is not None:
            self._trainer.__dict__["save_checkpoint"] = found
