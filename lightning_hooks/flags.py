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
        """Undo an evaluation, of the whole module or of the model inside that hooks see.

        The flags that the wrapper saw before its ``eval()`` come before those captured.
        """
        before: dict[torch.nn.Module, bool] | None = None
        if isinstance(model, ModelWrapper) and model.flags_before_eval is not None:
            before, model.flags_before_eval = model.flags_before_eval, None
            if model.module.training:  # the hook has put it back itself
                before = None
        if not module.training:
            for part in module.modules():
                part.training = self._flags.get(part, True)
            module.training = True
        for part, flag in (before or {}).items():
            part.training = flag
