"""Placeholders for names of mmcv that the stand-in does not offer.

They can be imported, and classes also subclassed and registered; using one raises an error with
what to do.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from typing import Any, NoReturn

from lightning_hooks.standin.mmcv_names import Kind
from lightning_hooks.standin.names import Source
from lightning_hooks.standin.refused import refusal

__all__ = ["load", "placeholder", "placeholder_name"]


def load(source: Source) -> Any:
    """Return the object of a name, a placeholder if it is not offered."""
    if source.missing is None:
        return source.load()
    return placeholder(source.module, source.name, source.missing)


@functools.cache
def placeholder(module: str, name: str, kind: Kind) -> Any:
    """Return the placeholder for a name.

    Args:
        module: mmcv's module that defines it.
        name: The name.
        kind: Whether it stands for a class, a function or a value.
    """
    if kind == "class":
        return _PlaceholderClass(name, (), {"__module__": module})
    if kind == "value":
        return _PlaceholderValue(module, name)

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(refusal(f"{module}.{name}"))

    refuse.__module__, refuse.__name__, refuse.__qualname__ = module, name, name
    refuse.placeholder = f"{module}.{name}"  # type: ignore[attr-defined]
    return refuse


def placeholder_name(value: Any) -> str:
    """Return the full name of a placeholder, or of a class that inherits from one.

    Returns:
        ``"mmcv.ops.carafe.CARAFE"``; empty for anything else.
    """
    if isinstance(value, _PlaceholderClass):
        origin = next(cls for cls in reversed(value.__mro__) if isinstance(cls, _PlaceholderClass))
        return f"{origin.__module__}.{origin.__name__}"
    found = vars(value).get("placeholder", "") if hasattr(value, "__dict__") else ""
    return found if isinstance(found, str) else ""


class _PlaceholderClass(ABCMeta):
    """The type of classes that can be inherited from, but not constructed."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(refusal(placeholder_name(cls)))

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):  # Python, torch and pickle look for such
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        raise AttributeError(refusal(placeholder_name(cls)))


class _PlaceholderValue:
    """Stands for a value."""

    def __init__(self, module: str, name: str) -> None:
        self.placeholder = f"{module}.{name}"

    def __repr__(self) -> str:
        return f"<{self.placeholder}, which the stand-in does not offer>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name if name.startswith("_") else refusal(self.placeholder))
