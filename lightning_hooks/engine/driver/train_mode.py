"""Restore a module's train flags after a hook has evaluated it."""

from __future__ import annotations

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["TrainMode"]


class TrainMode:
    """The train flags of a runner's module, as they were captured.

    A hook that leaves the whole module in eval mode has evaluated it: the flags are restored. A
    hook that changes the flags of parts (frozen BatchNorm) means them: they stay.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._flags: dict[torch.nn.Module, bool] = {}

    def capture(self) -> None:
        """Remember the flags as they are."""
        self._flags = {part: part.training for part in self._runner.module.modules()}
        self._runner.flags_before_eval = None

    def restore(self) -> None:
        """Undo an evaluation of the whole module, or of the model inside that hooks see.

        Flags that the wrapper saw before its ``eval()`` come before those captured.
        """
        runner = self._runner
        before, runner.flags_before_eval = runner.flags_before_eval or {}, None
        if before and unwrap(runner.model).training:  # the hook has restored them itself
            before = {}
        module = runner.module
        if not module.training:
            for part in module.modules():
                part.training = self._flags.get(part, True)
            module.training = True
        for part, flag in before.items():
            part.training = flag
