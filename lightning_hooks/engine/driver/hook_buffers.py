"""Save and load buffers that hooks add to the model in ``before_run``.

Old EMA hooks register ``ema_*`` buffers on the model. Lightning loads a checkpoint, strictly,
before ``before_run``, and would refuse the keys of buffers not yet registered. So the file keeps
the buffers apart, in ``checkpoint["lightning_hooks"]["buffers"]``. Values are loaded at once if the
model has the buffers from an earlier fit, else after ``before_run``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.resume import adopt
from lightning_hooks.engine.lightning_api.method_patch import Fit
from lightning_hooks.utils.fsdp import state_here
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["HookBuffers", "take_out"]


class HookBuffers:
    """The keys added by hooks to a module's state dict, kept apart in checkpoints.

    Args:
        trainer: The Trainer.
        module: The module.
        fit: The fit of the patches.
        until: The part of the fit in which a checkpoint is loaded.
    """

    def __init__(
        self,
        trainer: L.Trainer,
        module: L.LightningModule,
        fit: Fit,
        until: contextlib.ExitStack,
    ) -> None:
        self._trainer, self._module, self._fit = trainer, module, fit
        self._waiting: dict[str, Any] = {}
        self._resumes = False
        fit.patch(module, "on_load_checkpoint", self._load, until=until)

    def _load(self, checkpoint: dict[str, Any]) -> None:
        """Take the keys out of a checkpoint in loading."""
        adopt(self._trainer, checkpoint)  # first: adopt may replace the state dict
        own = set(state_here(self._module))
        kept = (checkpoint.get("lightning_hooks") or {}).get("buffers") or {}
        self._waiting = {name: value for name, value in kept.items() if name not in own}
        self._resumes = True
        state = checkpoint.get("state_dict")
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
        if not (may_add or self._resumes or _names(module)):
            yield
            return
        before = set(state_here(module))
        yield
        state = state_here(module)
        names, added = _names(module), set(state) - before
        names.update(added)
        if names:
            self._fit.patch(module, "on_save_checkpoint", partial(take_out, module))
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


def take_out(module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
    """Move the hooks' buffers out of a checkpoint's state dict."""
    state = checkpoint.get("state_dict", {})
    names = sorted(_names(module) & set(state))
    if names:
        kept = {name: state.pop(name) for name in names}
        checkpoint.setdefault("lightning_hooks", {})["buffers"] = kept


def _names(module: L.LightningModule) -> set[str]:
    """The keys added by hooks; kept on the module, as a module may outlive the Trainer."""
    names: set[str] = vars(module).setdefault("hook_buffers", set())
    return names


def _listed(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"the buffer {first!r}{f' and {len(others)} more' if others else ''}"
