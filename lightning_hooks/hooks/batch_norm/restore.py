"""Context managers for temporary changes, undone also after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lightning_hooks.engine.lightning_api.data import generators_of
from lightning_hooks.engine.lightning_api.validation import keep_train_flags
from lightning_hooks.utils import random_state

__all__ = ["buffers", "randomness", "uncompiled", "without_dropout"]


@contextlib.contextmanager
def buffers(model: nn.Module) -> Iterator[None]:
    """Restore the values of all buffers, and replaced buffers themselves."""
    before = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if not nn.parameter.is_lazy(buffer)
    ]
    try:
        yield
    finally:
        for module, name, buffer, value in before:
            buffer.copy_(value)
            setattr(module, name, buffer)


@contextlib.contextmanager
def randomness(batches: Any) -> Iterator[None]:
    """Restore the random state, and the generators of a loader."""
    before = [(generator, generator.get_state()) for generator in generators_of(batches)]
    try:
        with random_state.isolated():
            yield
    finally:
        for generator, state in before:
            generator.set_state(state)


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, also in attention and recurrent layers; restore all train flags."""
    with keep_train_flags(model):
        for module in model.modules():
            if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
                drops = bool(module.dropout)
            else:
                drops = any(word in type(module).__name__ for word in ("Drop", "StochasticDepth"))
            if drops:
                module.training = False
        yield


def uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Run compiled models uncompiled: compiled graphs would miss temporary changes."""
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
