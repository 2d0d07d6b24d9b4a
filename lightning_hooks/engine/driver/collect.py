"""Collect the hooks and the runner's options from a Trainer's callbacks."""

from __future__ import annotations

import os
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from lightning_hooks.engine.participant import Participant, RunnerOptions

__all__ = [
    "callbacks_of",
    "hooks_of",
    "is_lightnings_default",
    "participants_of",
    "prepares_in_before_run",
    "work_dir_of",
]


def callbacks_of(trainer: L.Trainer) -> list[Callback]:
    """Return the Trainer's callbacks; Lightning does not declare the attribute."""
    return trainer.callbacks  # type: ignore[attr-defined,no-any-return]


def participants_of(trainer: L.Trainer) -> list[Participant]:
    """Return the hooks and adapters among the Trainer's callbacks."""
    return [callback for callback in callbacks_of(trainer) if isinstance(callback, Participant)]


def hooks_of(trainer: L.Trainer) -> list[Any]:
    """Return the hooks of all participants in the order given, in an adapter or not."""
    found: dict[int, Any] = {}
    for participant in participants_of(trainer):
        for hook, _ in participant.entries():
            found.setdefault(id(hook), hook)
    return [*found.values()]


def is_lightnings_default(callback: Callback) -> bool:
    """Return whether a callback is Lightning's default ModelCheckpoint."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback.monitor is callback.filename is callback.save_last is None


def work_dir_of(trainer: L.Trainer, options: RunnerOptions) -> str:
    """Return the directory for the hooks' files: an absolute or a remote path."""
    work_dir = options.work_dir or trainer.default_root_dir
    return work_dir if "://" in work_dir else os.path.abspath(work_dir)


def prepares_in_before_run(hook: Any) -> bool:
    """Whether a class of this package, besides the base of all hooks, has a ``before_run``."""
    return any(
        "before_run" in vars(base) and base.__name__ != "Hook"
        for base in type(hook).__mro__
        if base.__module__.startswith("lightning_hooks.")
    )
