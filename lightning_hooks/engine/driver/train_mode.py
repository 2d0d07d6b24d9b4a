"""The train flags of a module: what a hook's own evaluation changed is put back."""

from __future__ import annotations

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["TrainFlags"]


class TrainFlags:
    """Remembers which parts of a module train.

    A hook that leaves the whole module in eval mode has evaluated: the flags from before that
    come back. A hook that changes the flags of parts (frozen BatchNorm) meant it: they stay.
    """

    def __init__(self) -> None:
        self._flags: dict[torch.nn.Module, bool] = {}

    def capture(self, runner: Runner) -> None:
        """Remember the module's flags as they are."""
        self._flags = {part: part.training for part in runner.module.modules()}
        runner.flags_before_eval = None

    def put_back(self, runner: Runner) -> None:
        """Undo an evaluation, of the whole module or of the model inside that hooks see.

        The flags that the wrapper saw before its ``eval()`` come before those captured.
        """
        before, runner.flags_before_eval = runner.flags_before_eval or {}, None
        if before and unwrap(runner.model).training:  # the hook has put it back itself
            before = {}
        module = runner.module
        if not module.training:
            for part in module.modules():
                part.training = self._flags.get(part, True)
            module.training = True
        for part, flag in before.items():
            part.training = flag
