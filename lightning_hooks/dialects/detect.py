"""Telling a hook's dialect by its class's base and methods."""

from __future__ import annotations

import inspect
from typing import Any

from lightning_hooks.points import GENERIC, STAGES
from lightning_hooks.suggest import UnknownNameError, suggest

__all__ = ["DIALECTS", "detect"]

DIALECTS: dict[str, frozenset[str]] = {
    "mmcv": frozenset(STAGES) | frozenset(GENERIC.values()),
    "mmengine": frozenset(STAGES)
    | frozenset(GENERIC.values())
    | {"before_train", "after_train", "before_val", "after_val", "before_test", "after_test"},
    "detectron2": frozenset(
        {"before_train", "after_train", "before_step", "after_step", "after_backward"}
    ),
    "cvpods": frozenset({"before_train", "after_train", "before_step", "after_step"}),
    "pet": frozenset({"before_train", "after_train", "before_step", "after_step"}),
    "pointrix": frozenset(
        {
            "before_run",
            "before_train",
            "before_train_iter",
            "after_train_iter",
            "before_val",
            "before_val_iter",
            "after_val_iter",
            "after_val",
            "after_train",
            "after_run",
        }
    ),
}
"""The points of each dialect that hooks are known to be written in."""

SUPPORTED = ("mmcv",)


def detect(hook: Any, dialect: str = "auto") -> str:
    """Return the dialect of a hook.

    Args:
        hook: A hook object.
        dialect: What the user says it is, or ``"auto"``.

    Raises:
        UnknownNameError: if ``dialect`` names none.
        TypeError: if the object has no point of the dialect, or of any.
        ValueError: if it cannot be told, or the dialect is not hosted yet.
    """
    if dialect not in ("auto", *DIALECTS):
        hint = suggest(dialect, ["auto", *DIALECTS])
        raise UnknownNameError(f"unknown dialect {dialect!r}; {hint}")
    name = type(hook).__name__
    if inspect.isclass(hook):
        raise TypeError(f"{hook.__name__} is a class; pass an object: {hook.__name__}(...)")
    points = {p for known in DIALECTS.values() for p in known if callable(getattr(hook, p, None))}
    if not points:
        raise TypeError(
            f"{name} object has none of the points of a hook ({', '.join(sorted(STAGES))}, ...)"
        )
    if dialect == "auto":
        dialect = _tell(hook, points)
    if dialect not in SUPPORTED:
        raise ValueError(
            f"{name} is a hook of {dialect}, which HookAdapter does not host yet; "
            f"hosted: {', '.join(SUPPORTED)}"
        )
    if not points & DIALECTS[dialect]:
        raise TypeError(f"{name} has no point of the dialect {dialect!r}, only {sorted(points)}")
    return dialect


def _tell(hook: Any, points: set[str]) -> str:
    """Decide by the package of a base class, else by the points, else refuse."""
    bases = {base.__module__.partition(".")[0] for base in type(hook).__mro__}
    for package in ("mmengine", "detectron2", "cvpods", "pointrix", "mmcv", "lightning_hooks"):
        if package in bases:
            return "mmcv" if package == "lightning_hooks" else package
    own = points & DIALECTS["mmcv"]
    others = points - DIALECTS["mmcv"]
    if own and not others:
        extra = [p for p in sorted(own) if _required_arguments(getattr(hook, p)) > 1]
        if not extra:
            return "mmcv"
        raise ValueError(
            f"cannot tell the dialect of {type(hook).__name__}: {extra[0]} takes more than the "
            'runner, as in mmengine; say HookAdapter(..., dialect="mmengine")'
        )
    candidates = [name for name, known in DIALECTS.items() if points <= known]
    fitting = ", ".join(candidates) or ", ".join(DIALECTS)
    raise ValueError(
        f"cannot tell the dialect of {type(hook).__name__} from its points "
        f"({', '.join(sorted(points))}): it may be {fitting}; say HookAdapter(..., dialect=...)"
    )


def _required_arguments(method: Any) -> int:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in parameters
    )
