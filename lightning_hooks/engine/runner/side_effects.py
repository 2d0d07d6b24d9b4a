"""Undo the side effects of model calls by hooks.

A hook may call the module at any point, through ``runner.model`` or directly. A step run by a hook
is no training step: logging is ignored (Lightning allows logging at few points), and torchmetrics'
states and the random state are restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.utils import random_state

__all__ = ["STEPS", "CallGuards", "isolated_model_calls"]

STEPS = (
    "forward",
    "training_step",
    "validation_step",
    "test_step",
    "predict_step",
    "train_step",
    "val_step",
)
"""The methods of Lightning and mmcv that run a model."""


@contextmanager
def isolated_model_calls(runner: Any) -> Iterator[None]:
    """Undo the side effects of model calls in the block.

    Inside a training step owned by hooks the random state is not restored: a second forward (SAM)
    is part of the step, and draws as in mmcv.
    """
    calling, runner.calls_hooks = runner.calls_hooks, False  # nested calls are isolated already
    draws = logged_values.in_training_step(runner.module)
    try:
        with (
            logged_values.isolated_logging(runner.module),
            nullcontext() if draws else random_state.isolated(),
        ):
            yield
    finally:
        runner.calls_hooks = calling


class _Guard(MethodPatch):
    """A method that is isolated when called by a hook."""

    def __init__(self, module: torch.nn.Module, name: str, runner: Any) -> None:
        super().__init__(module, name)
        self._runner = runner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._is_active and self._runner.calls_hooks):
            return self._call(*args, **kwargs)
        with isolated_model_calls(self._runner):
            return self._call(*args, **kwargs)


class CallGuards:
    """Patches that isolate hooks' calls of the methods that run a module, for one run.

    Args:
        runner: The runner; ``runner.calls_hooks`` is True while a hook runs.
        parts: The trained module and ``runner.model.module``.
    """

    def __init__(self, runner: Any, *parts: torch.nn.Module) -> None:
        self._guards = [
            _Guard(part, name, runner)
            for part in dict.fromkeys(parts)
            for name in STEPS
            if _defines(part, name)
        ]

    def remove(self) -> None:
        """Restore the methods; a second call changes nothing."""
        for guard in self._guards:
            guard.remove()
        self._guards.clear()


def _defines(part: torch.nn.Module, name: str) -> bool:
    stock = [getattr(base, name, None) for base in (L.LightningModule, torch.nn.Module)]
    return name in part.__dict__ or getattr(type(part), name, None) not in [None, *stock]
