"""Read the arguments of the running ``fit`` or ``validate``, and load a checkpoint in ``setup``.

Lightning turns ``ckpt_path="last"`` into a path before any callback has a Trainer, by asking each
``ModelCheckpoint`` among the callbacks. A hook in a ``HookAdapter``, and a hook from the module's
``configure_callbacks``, becomes a callback later: Lightning finds no file, and forgets the word.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api.private_names import needs

__all__ = ["asks_for_last", "chosen_path", "connect_ranks", "load_checkpoint"]

ENTRY_POINTS = ("fit", "validate", "test", "predict")
LAUNCHED = "_wrapping_function"
"""The function of a launcher's new process; the entry point is an argument."""


def _arguments(trainer: L.Trainer) -> Mapping[str, Any]:
    """Return the arguments of the running entry point; empty outside of the entry points."""
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        name = frame.f_code.co_name
        if name in ENTRY_POINTS and frame.f_locals.get("self") is trainer:
            return frame.f_locals
        if name == LAUNCHED and frame.f_locals.get("trainer") is trainer:
            launch = frame.f_locals
            return inspect.signature(launch["function"]).bind(*launch["args"]).arguments
    return {}


def asks_for_last(trainer: L.Trainer) -> bool:
    """Return whether the running ``fit`` or ``validate`` has got ``ckpt_path="last"``."""
    return bool(_arguments(trainer).get("ckpt_path") == "last")


def chosen_path(trainer: L.Trainer) -> Any:
    """Return the path that Lightning is about to load, None for none.

    ``trainer.ckpt_path`` still has the path of the Trainer's last load.
    """
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if frame.f_code.co_name == "_run" and frame.f_locals.get("self") is trainer:
            return frame.f_locals.get("ckpt_path")
    return None


def connect_ranks(trainer: L.Trainer) -> None:
    """Connect the ranks, as Lightning does again soon after, which changes nothing.

    Lightning looks for the file of ``ckpt_path="last"`` on each rank before the ranks are
    connected.
    """
    if trainer.world_size > 1 and not torch.distributed.is_initialized():
        trainer.strategy.setup_environment()


@needs('ckpt_path="last" for hooks in a HookAdapter')
def load_checkpoint(trainer: L.Trainer, path: str) -> bool:
    """Read a checkpoint; after ``setup``, Lightning restores the run from the loaded contents.

    Returns:
        True, or None (false) if Lightning lacks the private method.
    """
    given = _arguments(trainer)
    options = {"weights_only": given["weights_only"]} if "weights_only" in given else {}
    trainer._checkpoint_connector.resume_start(path, **options)
    return True
