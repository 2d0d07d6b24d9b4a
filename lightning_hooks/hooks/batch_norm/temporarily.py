"""What a hook changes for a while is put back after it, also after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lightning_hooks.engine.driver.train_data import generators_of
from lightning_hooks.utils import random_state

__all__ = ["attributes", "buffers", "draws", "dropout_off", "uncompiled"]


@contextlib.contextmanager
def attributes(thing: object, *names: str) -> Iterator[None]:
    """Put back an object's own attributes; those that it had only from its class go away."""
    before = {name: vars(thing)[name] for name in names if name in vars(thing)}
    try:
        yield
    finally:
        for name in names:
            vars(thing).pop(name, None)
        vars(thing).update(before)


@contextlib.contextmanager
def buffers(model: nn.Module) -> Iterator[None]:
    """Put back the values of all buffers, and the buffers themselves where they were replaced."""
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
def draws(batches: Any) -> Iterator[None]:
    """Put back the random state, and that of the generators that a loader has of its own."""
    before = [(generator, generator.get_state()) for generator in generators_of(batches)]
    try:
        with random_state.isolated():
            yield
    finally:
        for generator, state in before:
            generator.set_state(state)


@contextlib.contextmanager
def dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, also that inside attention and recurrent layers; put all flags back."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            if _drops(module):
                module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training


def _drops(module: nn.Module) -> bool:
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return bool(module.dropout)
    return any(word in type(module).__name__ for word in ("Drop", "StochasticDepth"))


def uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Run compiled models uncompiled: their graphs would not see what is changed for a while."""
    stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    return contextlib.nullcontext() if stance is None else stance("force_eager")
