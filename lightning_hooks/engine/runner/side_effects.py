"""Undo the side effects of model calls by hooks.

A hook may call the module at any point, through ``runner.model`` or directly. A step run by a hook
is no training step: logging is ignored (Lightning allows logging at few points), and torchmetrics'
states and the random state are restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.lightning_api.method_patch import Fit, MethodPatch
from lightning_hooks.utils import random_state

__all__ = ["STEPS", "guard_calls", "isolated_model_calls"]

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

    def __init__(self, part: torch.nn.Module, name: str, runner: Any) -> None:
        super().__init__(part, name)
        self._runner = runner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._runner.calls_hooks:
            return self._call(*args, **kwargs)
        with isolated_model_calls(self._runner):
            return self._call(*args, **kwargs)


def guard_calls(runner: Any, parts: Iterable[torch.nn.Module], fit: Fit, until: ExitStack) -> None:
    """Isolate hooks' calls of the methods that run a module.

    Args:
        runner: The runner; ``runner.calls_hooks`` is True while a hook runs.
        parts: The trained module and ``runner.model.module``.
        fit: The fit of the patches.
        until: The part of the fit.
    """
    for part in dict.fromkeys(parts):
        for name in STEPS:
            if _defines(part, name):
                fit.hold(_Guard(part, name, runner), until)


def _defines(part: torch.nn.Module, name: str) -> bool:
    stock = [getattr(base, name, None) for base in (L.LightningModule, torch.nn.Module)]
    return name in part.__dict__ or getattr(type(part), name, None) not in [None, *stock]
