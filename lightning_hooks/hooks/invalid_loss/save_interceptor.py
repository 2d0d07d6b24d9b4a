"""Wrap ``trainer.save_checkpoint`` with callbacks before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerStatus

__all__ = ["SaveInterceptor"]


class SaveInterceptor:
    """Replaces ``trainer.save_checkpoint``, on the instance, until it is removed.

    All savers go through this method, also those of weights only, for which Lightning calls no
    callback.

    Args:
        trainer: The Trainer.
        before: Called before a file is written; an exception prevents that.
        after: Called with the path of each full checkpoint that was written.
    """

    def __init__(
        self, trainer: L.Trainer, before: Callable[[], None], after: Callable[[Any], None]
    ) -> None:
        self._trainer = trainer
        self._previous = vars(trainer).get("save_checkpoint")  # another interceptor's, perhaps
        self._save = trainer.save_checkpoint
        self._before, self._after = before, after
        self._is_active, self._refuses = True, False
        trainer.save_checkpoint = self  # type: ignore[method-assign]

    def __call__(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint as the Trainer does."""
        if self._refuses:
            state = self._trainer.state
            if state.status == TrainerStatus.INTERRUPTED and state.stage is not None:
                return
            self.remove()
        if self._is_active:
            self._before()
        self._save(filepath, *args, **kwargs)
        if self._is_active and not kwargs.get("weights_only", args[0] if args else False):
            self._after(filepath)

    def refuse(self) -> None:
        """Write nothing until the failed fit is over, then remove this interceptor."""
        self._refuses = True

    def remove(self) -> None:
        """Restore the method; several may be removed in any order, and more than once."""
        self._is_active = self._refuses = False
        current = vars(self._trainer).get("save_checkpoint")
        while isinstance(current, SaveInterceptor) and not (current._is_active or current._refuses):
            current = current._previous
        if current is not None:
            self._trainer.save_checkpoint = current  # type: ignore[method-assign]
        else:
            vars(self._trainer).pop("save_checkpoint", None)
