"""What calls and classes look like, as texts that can be compared."""

from __future__ import annotations

import inspect
from typing import Any

SPECIAL = ("__init__", "__call__", "__len__", "__next__")


def arguments(function: Any) -> str | None:
    """Return a call's arguments: ``a b= *args **kwargs``; None if they cannot be told."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return " ".join(
        stars.get(p.kind, "") + p.name + ("=" if p.default is not p.empty else "")
        for p in parameters
    )


def members(cls: type) -> dict[str, str | None]:
    """Return what a class has of mmcv's: a method's arguments, or ``(property)``, ``(value)``."""
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
