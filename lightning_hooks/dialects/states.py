"""The states of hooks of other dialects in Lightning's checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.dialects.hosted import Hosted

__all__ = ["KEY", "load_states", "save_states"]

KEY = "lightning_hooks_dialects"
"""The entry of a checkpoint: the state by :func:`keys_of` name."""


def save_states(trainer: L.Trainer, hooks: Sequence[Hosted], checkpoint: dict[str, Any]) -> None:
    """Put the states of the hooks that have a ``state_dict()`` into a checkpoint."""
    keys = keys_of(trainer)
    for facade in dict.fromkeys(hosted.facade for hosted in hooks):
        if facade is not None:  # its run may be over
            facade.save(checkpoint)
    for hosted in hooks:
        hook = hosted.foreign_hook
        state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
        if state:
            checkpoint.setdefault(KEY, {})[keys[id(hook)]] = state
        if hosted.facade is not None:
            hosted.call_with_checkpoint("before_save_checkpoint", checkpoint)


def load_states(trainer: L.Trainer, hooks: Sequence[Hosted], checkpoint: dict[str, Any]) -> None:
    """Keep each hook's state for the beginning of its run; tell of those that nobody wants."""
    states, keys = checkpoint.get(KEY, {}), keys_of(trainer)
    for hosted in hooks:
        hosted.loaded_state = states.get(keys[id(hosted.foreign_hook)])
        hosted.loaded_checkpoint = checkpoint
    if hooks and keys[id(hooks[0].foreign_hook)] == next(iter(keys.values())):  # told once
        unknown = sorted(set(states) - set(keys.values()))
        if unknown:
            rank_zero_warn(
                f"the checkpoint has the state of {', '.join(unknown)}, and there is no such hook "
                f"now; there are: {', '.join(keys.values())}"
            )


def keys_of(trainer: L.Trainer) -> dict[int, str]:
    """Return a name for each hook of another dialect, by its id: its class, numbered if needed."""
    keys: dict[int, str] = {}
    met: Counter[str] = Counter()
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        for entry, _ in getattr(callback, "entries", list)():
            if isinstance(entry, Hosted):
                name = type(entry.foreign_hook).__qualname__
                keys[id(entry.foreign_hook)] = f"{name}[{met[name]}]" if met[name] else name
                met[name] += 1
    return keys
