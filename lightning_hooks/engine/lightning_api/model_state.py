"""Change the state of a user's model: train flags, buffers, submodules.

The context managers undo their changes, also after an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Set
from typing import Any

from torch import nn

__all__ = [
    "added_buffers",
    "keep_buffers",
    "keep_train_flags",
    "parts_of",
    "replace_submodule",
    "set_parts",
    "set_train_flags",
    "train_flags",
    "trained",
    "without_dropout",
]

_PARTS = ("_parameters", "_buffers", "_modules")


def train_flags(*modules: nn.Module) -> dict[nn.Module, bool]:
    """Return the train flags of modules and all their parts."""
    return {part: part.training for module in modules for part in module.modules()}


def set_train_flags(flags: Mapping[nn.Module, bool]) -> None:
    """Set the train flag of each module alone, without the module's parts."""
    for part, flag in flags.items():
        part.training = flag


def trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that need gradients, by name.

    While manual optimization has an optimizer toggled, those of the others need gradients, too.
    """
    toggled: Mapping[Any, bool] = getattr(module, "_param_requires_grad_state", {})
    named = module.named_parameters()
    return [(name, p) for name, p in named if toggled.get(p, p.requires_grad)]


@contextlib.contextmanager
def keep_train_flags(*modules: nn.Module) -> Iterator[None]:
    """Restore the train flags of modules and all their parts after the block."""
    flags = train_flags(*modules)
    try:
        yield
    finally:
        set_train_flags(flags)


@contextlib.contextmanager
def keep_buffers(model: nn.Module) -> Iterator[None]:
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
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, also in attention and recurrent layers; restore all train flags."""
    with keep_train_flags(model):
        for module in model.modules():
            has_rate = isinstance(module, (nn.MultiheadAttention, nn.RNNBase))
            is_named = any(w in type(module).__name__ for w in ("Drop", "StochasticDepth"))
            if module.dropout if has_rate else is_named:
                module.training = False
        yield


# -- parts that a hook adds or replaces: they stay after the fit -----------------------------


def parts_of(module: nn.Module) -> dict[str, Any]:
    """Return a module's parameters, buffers and submodules, for :func:`set_parts`."""
    return {name: vars(module)[name] for name in _PARTS}


def set_parts(module: nn.Module, parts: Mapping[str, Any]) -> None:
    """Replace a module's parameters, buffers and submodules by the result of :func:`parts_of`."""
    vars(module).update(parts)


def replace_submodule(module: nn.Module, old: nn.Module, new: nn.Module) -> bool:
    """Put a module in the place of a submodule; return whether there is such a place."""
    name = next((name for name, part in module.named_modules() if name and part is old), "")
    parent, _, attribute = name.rpartition(".")
    if name:
        setattr(module.get_submodule(parent), attribute, new)
    return bool(name)


def added_buffers(module: nn.Module, new: Set[str] = frozenset()) -> set[str]:
    """Return the keys that hooks have added to a module's state dict, with new ones.

    The names are kept on the module, which may outlive the Trainer.
    """
    names: set[str] = vars(module).get("hook_buffers", set()) | new
    if new:
        vars(module)["hook_buffers"] = names
    return names
