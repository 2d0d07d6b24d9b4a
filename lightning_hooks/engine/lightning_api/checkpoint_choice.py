"""Take part in Lightning's choice of a checkpoint: which Trainer chooses, and of whose files."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector

from lightning_hooks.engine.participant import Participant

__all__ = ["choosing_trainer", "is_lightnings_default", "join_choice"]

_METHOD = "_parse_ckpt_path"


def choosing_trainer() -> L.Trainer | None:
    """Return the Trainer that is looking for ``ckpt_path="best"`` now, None if none is.

    Lightning reads a callback's ``best_model_path`` before it has given a Trainer to any callback.
    In a new process only the callers know the Trainer then, and so the directory.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, _CheckpointConnector):
            return caller.trainer
        frame = frame.f_back
    return None


def join_choice() -> None:
    """Have Lightning ask hooks in adapters too for ``ckpt_path="last"`` and ``"best"``.

    It resolves both words from the Trainer's callbacks before it calls any of them, and an
    adapter's hooks become callbacks in ``setup`` only: here they are for as long as it looks. They
    come before the callback that Lightning adds by itself, so that ``"best"`` is theirs.
    """
    plain = getattr(_CheckpointConnector, _METHOD, None)
    if plain is None or hasattr(plain, "__wrapped__"):  # a later Lightning; the first call did it
        return

    @functools.wraps(plain)
    def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
        trainer, own = self.trainer, self.trainer.callbacks
        hosted = [hook for callback in own for hook in _hosted_by(callback)]
        if hosted:
            new = [hook for hook in hosted if not any(hook is one for one in own)]
            trainer.callbacks = sorted([*own, *new], key=is_lightnings_default)
        try:
            return plain(self, *args, **kwargs)
        finally:
            trainer.callbacks = own

    setattr(_CheckpointConnector, _METHOD, choose)


def _hosted_by(callback: Callback) -> list[Any]:
    """Return the hooks of an adapter that Lightning takes for a ModelCheckpoint."""
    if not isinstance(callback, Participant) or isinstance(callback, ModelCheckpoint):
        return []
    return [hook for hook, _ in callback.entries() if isinstance(hook, ModelCheckpoint)]


def is_lightnings_default(callback: Callback) -> bool:
    """Return whether a callback is the one that Lightning adds by itself."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback.monitor is callback.filename is callback.save_last is None
