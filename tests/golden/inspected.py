"""Text forms of signatures and classes for comparison."""

from __future__ import annotations

import inspect
from typing import Any

SPECIAL = ("__init__", "__call__", "__len__", "__next__")
STARS = {inspect.Parameter.VAR_POSITIONAL: "*args", inspect.Parameter.VAR_KEYWORD: "**kwargs"}


def arguments(function: Any) -> str | None:
    """Return a call's arguments with their defaults; None if Python does not know them.

    >>> arguments(lambda a, b=[1, "x"], *, c=str: None), arguments(lambda *a, b: None)
    ("a b=(1,'x') * c=<str>", '*args b')
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    found = [STARS.get(p.kind) or p.name + _default(p.default) for p in parameters]
    named = [p.kind is p.KEYWORD_ONLY for p in parameters]
    if True in named and "*args" not in found:
        found.insert(named.index(True), "*")
    return " ".join(found)


def _default(value: Any) -> str:
    """Return ``=`` and the value without spaces; a list as a tuple, other objects by name."""
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, list):
        value = tuple(value)
    if hasattr(value, "write"):
        return "=<stream>"
    if callable(value) or type(value).__repr__ is object.__repr__:
        return f"=<{getattr(value, '__qualname__', type(value).__qualname__)}>"
    return f"={value!r}".replace(" ", "")


def members(cls: type) -> dict[str, str | None]:
    """Return a class's members from mmcv: a method's arguments, ``(property)`` or ``(value)``."""
    found: dict[str, str | None] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("mmcv"):
            continue
        for name, value in vars(base).items():
            if name.startswith(("__", "_abc_")) and name not in SPECIAL:
                continue
            if isinstance(value, property):
                found[name] = "(property)"
            elif isinstance(value, (staticmethod, classmethod)):
                found[name] = arguments(getattr(cls, name))
            else:
                found[name] = arguments(value) if callable(value) else "(value)"
    return found
