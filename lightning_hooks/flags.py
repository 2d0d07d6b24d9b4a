"""The train flags of a module: what a hook's own evaluation changed is put back."""

from __future__ import annotations

import torch

from lightning_hooks.model import ModelWrapper

__all__ = ["TrainFlags"]


class TrainFlags:
    """Remembers which parts of a module train.

    A hook that leaves the whole module in eval mode has evaluated: the flags from before that
    come back. A hook that changes the flags of parts (frozen BatchNorm) meant it: they stay.
    """

    def __init__(self) -> None:
        self._flags: dict[torch.nn.Module, bool] = {}

    def capture(self, module: torch.nn.Module) -> None:
        """Remember the flags as they are."""
        self._flags = {part: part.training for part in module.modules()}

    def put_back(self, module: torch.nn.Module, model: object) -> None:
        """Undo an evaluation; the flags that the wrapper saw before its ``eval()`` come first."""
        before = {}
        if isinstance(model, ModelWrapper):
            before, model.flags_before_eval = model.flags_before_eval or {}, None
        for part in module.modules():
            part.training = before.get(part, self._flags.get(part, True))
        module.training = True
