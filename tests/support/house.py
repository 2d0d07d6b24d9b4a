"""Attributes left by a fit on objects of the Trainer, torch and the user."""

from __future__ import annotations

import types
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

__all__ = ["House", "changes", "classes_of", "differences", "house_of"]

House = dict[str, dict[str, Any]]
"""The attributes of each object, by the object's path."""

PLAIN = (int, float, str, bytes, type(None))
OWNERS = ("lightning.", "torch.", "support.", "tests.", "test_")
# paths and clocks, losses, values published by hooks, and the state of the training
OTHERS = {"_default_root_dir", "dirpath", "_last_val_time", "losses", "_callback_metrics", "state"}


def objects_of(roots: dict[str, Any]) -> dict[str, Any]:
    """Return all objects reachable from the roots by path, except callbacks and our objects."""
    found: dict[str, Any] = {}
    queue, known = [*roots.items()], set()
    for path, one in queue:
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, (list, tuple)):
            queue += [(f"{path}[{i}]", part) for i, part in enumerate(one)]
        elif isinstance(one, dict):
            queue += [(f"{path}[{key!r}]", part) for key, part in one.items()]
        elif (
            hasattr(one, "__dict__")
            and type(one).__module__.startswith(OWNERS)
            and not isinstance(one, (torch.Tensor, type, types.FunctionType, Callback))
        ):
            found[path] = one
            queue += [(f"{path}.{name}", part) for name, part in vars(one).items()]
    return found


def shown(value: Any) -> Any:
    """Return a plain value as given; of other values the type and, of a dict, the keys."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(part, PLAIN) for part in value):
        return list(value)
    if isinstance(value, torch.Tensor):
        return type(value), value.shape, value.requires_grad
    return type(value), [*map(str, value)] if isinstance(value, dict) else None


def house_of(**roots: Any) -> House:
    """Return the attributes of all objects reachable from the roots, as plain values."""
    return {
        path: {
            name: shown(value)
            for name, value in vars(one).items()
            if name not in OTHERS and not is_plain_method(one, name, value)
        }
        for path, one in objects_of(roots).items()
    }


def is_plain_method(one: Any, name: str, value: Any) -> bool:
    """Return whether a value is a plain bound method, as a copied module has instead of a patch."""
    if not (isinstance(value, types.MethodType) and value.__self__ is one):
        return False
    return getattr(type(one), name, None) is value.__func__


def classes_of(**roots: Any) -> House:
    """Return the class attributes of all objects reachable from the roots."""
    kinds = {kind for one in objects_of(roots).values() for kind in type(one).__mro__[:-1]}
    return {f"{kind.__module__}.{kind.__qualname__}": dict(vars(kind)) for kind in kinds}


def changes(before: House, after: House) -> House:
    """Return the changed attributes of classes."""
    return {
        kind: {
            name: shown(value)
            for name, value in after[kind].items()
            # Lightning wraps the methods of DataLoader
            if before[kind].get(name, after) is not value and not name.startswith("__")
        }
        for kind in before.keys() & after.keys()
    }


def differences(found: House, expected: House) -> list[str]:
    """List the added, missing and changed attributes."""
    none = object()
    return [
        f"{path}.{name}: {here.get(name, 'gone')}, not {there.get(name, 'there')}"
        for path in sorted(found.keys() | expected.keys())
        for here, there in [(found.get(path, {}), expected.get(path, {}))]
        for name in sorted(here.keys() | there.keys())
        if here.get(name, none) != there.get(name, none)
    ]
