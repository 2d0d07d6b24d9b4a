"""Keep the buffers that hooks add to a model apart in checkpoint files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.lightning_api import model_state
from lightning_hooks.utils.fsdp import state_here
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["HookBuffers"]


class HookBuffers:
    """The buffers added by hooks to a module in ``before_run``, kept apart in checkpoints.

    Old EMA hooks register ``ema_*`` buffers on the model. Lightning loads a checkpoint, strictly,
    before ``before_run``, and would refuse the keys of buffers not yet registered. So the file
    keeps the buffers in ``checkpoint["lightning_hooks"]["buffers"]``. Values are loaded at once if
    the model has the buffers from an earlier fit, else after ``before_run``.

    Args:
        trainer: The Trainer.
        module: The module.
    """

    def __init__(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._trainer, self._module = trainer, module
        self._waiting: dict[str, Any] = {}
        self._resumes = False

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Move the buffers out of the state dict."""
        state = file.contents.get("state_dict", {})
        names = sorted(model_state.added_buffers(self._module) & set(state))
        if names:
            file.own_part["buffers"] = {name: state.pop(name) for name in names}

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Move the buffers that the model has into the state dict, and keep the others."""
        own = set(state_here(self._module))
        kept = file.own_part.get("buffers", {})
        self._waiting = {name: value for name, value in kept.items() if name not in own}
        self._resumes = True
        state = file.contents.get("state_dict")
        if state is not None:
            state.update({name: value for name, value in kept.items() if name in own})

    @contextlib.contextmanager
    def added(self, may_add: bool) -> Iterator[None]:
        """Find the keys added by hooks in the block, and load the values from the checkpoint.

        Warn about saved buffers without a hook, and about new buffers that the file lacks.

        Args:
            may_add: Whether some hooks may add keys; the hooks of this package do not.
        """
        module = self._module
        # state_dict() brings parameters back to shards, which hooks keep in before_run
        is_sharded = isinstance(self._trainer.strategy, ModelParallelStrategy)
        noted = model_state.added_buffers(module)
        if not (may_add or self._resumes or is_sharded or noted):
            yield
            return
        before = set(state_here(module))
        yield
        state = state_here(module)
        added = set(state) - before
        model_state.added_buffers(module, added)
        waiting, self._waiting = self._waiting, {}
        self._warn(waiting.keys() - state.keys(), added - waiting.keys())
        with torch.no_grad():
            for name, value in waiting.items():
                if name in state:
                    state[name].copy_(value)

    def _warn(self, left: set[str], new: set[str]) -> None:
        resumes, self._resumes = self._resumes, False
        if left:
            rank_zero_warn(
                f"the checkpoint has {_listed(left)}, which a hook had added to the model, and no "
                "hook of this Trainer adds now. Give the Trainer that hook to go on with it; "
                "without, it is lost from the next checkpoint on"
            )
        if new and resumes:
            rank_zero_warn(
                f"a hook has added {_listed(new)} to the model, which the checkpoint does not "
                "have: it begins anew. If the hook is not new in this run, resume from a "
                "checkpoint that was written with it"
            )


def _listed(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"the buffer {first!r}{f' and {len(others)} more' if others else ''}"
