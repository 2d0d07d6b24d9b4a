"""Buffers that hooks add to the model in ``before_run``, through Lightning's checkpoints.

Old EMA hooks register ``ema_*`` buffers on the model. Lightning loads a checkpoint, strictly,
before ``before_run``: it would refuse the keys that the model does not have yet. So they are
kept apart in the file (``checkpoint["lightning_hooks"]["buffers"]``), and put back when they
are there: at once if the model has them from an earlier fit, else after ``before_run``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api.method_patch import Listening
from lightning_hooks.utils.fsdp import state_here

__all__ = ["HookBuffers"]


class HookBuffers:
    """Knows which keys of a module's state dict came from hooks."""

    def __init__(self) -> None:
        self._waiting: dict[str, Any] = {}
        self._listening: Listening | None = None
        self._saving: Listening | None = None

    def listen(self, module: L.LightningModule) -> None:
        """Sort the keys out when a checkpoint is loaded into the module."""
        self.stop_listening()
        self._listening = Listening(module, "on_load_checkpoint", partial(self._sort, module))

    def stop_listening(self, saving: bool = False) -> None:
        """Give the module its own methods back; doing it twice does no harm.

        Args:
            saving: The fit is over, and no checkpoint is saved any more.
        """
        if self._listening is not None:
            self._listening.remove()
            self._listening = None
        if saving and self._saving is not None:
            self._saving.remove()
            self._saving = None

    def _sort(self, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        own = set(state_here(module))
        kept = (checkpoint.get("lightning_hooks") or {}).get("buffers") or {}
        self._waiting = {name: value for name, value in kept.items() if name not in own}
        state = checkpoint.get("state_dict")
        if state is not None:
            state.update({name: value for name, value in kept.items() if name in own})

    def keys(self, module: L.LightningModule) -> set[str]:
        """The keys of the module's state dict, to compare with those after ``before_run``."""
        return set(state_here(module))

    def added(self, module: L.LightningModule, before: set[str]) -> None:
        """Note what hooks have added, and give it the values that a checkpoint had for it."""
        state = state_here(module)
        self._names(module).update(set(state) - before)
        if self._saving is None:
            take_out = partial(self.take_out, module)
            self._saving = Listening(module, "on_save_checkpoint", take_out)
        waiting, self._waiting = self._waiting, {}
        with torch.no_grad():
            for name, value in waiting.items():
                if name in state:
                    state[name].copy_(value)

    def take_out(self, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the buffers of hooks apart from a checkpoint's state dict."""
        state = checkpoint.get("state_dict", {})
        names = sorted(self._names(module) & set(state))
        if names:
            kept = {name: state.pop(name) for name in names}
            checkpoint.setdefault("lightning_hooks", {})["buffers"] = kept

    @staticmethod
    def _names(module: L.LightningModule) -> set[str]:
        """The keys that hooks have added; the module knows, for it may outlive its Trainer."""
        names: set[str] = module.__dict__.setdefault("hook_buffers", set())
        return names
