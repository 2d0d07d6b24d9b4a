"""Detect the dialect of a hook from its base class, its points and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback

from lightning_hooks.dialects.dialect import DIALECTS
from lightning_hooks.engine.points import GENERIC, STAGES
from lightning_hooks.utils.arguments import check_object
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["MMCV", "PACKAGES", "detect"]

MMCV = frozenset(STAGES) | frozenset(GENERIC.values())
"""The methods of an mmcv hook."""

PACKAGES = {
    "mmengine": "mmengine",
    "detectron2": "detectron2",
    "cvpods": "cvpods",
    "cvpack2": "cvpods",
    "pet": "pet",
    "pointrix": "pointrix",
    "mmcv": "mmcv",
}
"""The dialect of a hook one of whose base classes is in a package."""

_OURS = "lightning_hooks.dialects."


def detect(hook: Any, dialect: str = "auto") -> str:
    """Return the dialect of a hook.

    Args:
        hook: A hook object.
        dialect: What the user says it is, or ``"auto"``.

    Raises:
        UnknownNameError: if ``dialect`` names none.
        TypeError: if the object has no point of the dialect, or of any.
        ValueError: if it cannot be told.
    """
    known = {"mmcv": MMCV, **{name: one.methods for name, one in DIALECTS.items()}}
    if dialect not in ("auto", *known):
        raise UnknownNameError(f"unknown dialect {dialect!r}; {suggest(dialect, ['auto', *known])}")
    name = type(hook).__name__
    check_object(hook)
    if isinstance(hook, str):
        raise TypeError(f"a name is no hook: write dict(type={hook!r}), or pass an object")
    if isinstance(hook, (list, tuple)):
        raise TypeError(f"a {name} among the hooks: give all in one list, HookAdapter([*hooks])")
    points = {p for names in known.values() for p in names if callable(getattr(hook, p, None))}
    if dialect == "auto":
        told = _by_base(hook) or (_by_points(hook, points, known) if points else None)
        if told is None:
            if isinstance(hook, Callback):
                raise TypeError(f"{name} is Lightning's own: give it to Trainer(callbacks=[...])")
            raise TypeError(
                f"{name} object has none of the points of a hook ({', '.join(sorted(STAGES))}, ...)"
            )
        return told
    if _is_native(hook):
        return "mmcv"
    if not points & known[dialect] and _by_base(hook) != dialect:
        listing = sorted(points) or "none of a hook"
        raise TypeError(f"{name} has no point of the dialect {dialect!r}, only {listing}")
    return dialect


def _is_native(hook: Any) -> bool:
    """Whether a hook is a Callback of ours: it is what it is, in every adapter."""
    modules = [base.__module__ for base in type(hook).__mro__]
    return "lightning_hooks.engine.participant" in modules


def _by_base(hook: Any) -> str | None:
    """Tell by the module of a base class, the nearest first."""
    for base in type(hook).__mro__:
        module = base.__module__
        if module.startswith(_OURS):
            ours = module.removeprefix(_OURS).partition(".")[0]
            if ours in PACKAGES.values():
                return ours
        package = module.partition(".")[0]
        if package == "lightning_hooks":
            return "mmcv"
        if package in PACKAGES:
            return PACKAGES[package]
    return None


def _by_points(hook: Any, points: set[str], known: Mapping[str, frozenset[str]]) -> str:
    """Tell by what the hook has and what its points take, else refuse."""
    takes = {point: _parameters(getattr(hook, point)) for point in points}
    names = {name for parameters in takes.values() for name in parameters}
    if names & {"batch_idx", "data_batch", "metrics"}:
        return "mmengine"
    if "trainner" in names:  # pointrix's own spelling
        return "pointrix"
    if points & {"before_step", "after_step"}:
        if "after_backward" in points:
            return "detectron2"
        if names & {"storage", "kwargs", "max_epochs"}:
            return "pet"
    elif points <= MMCV:
        return _mmcv_or_refuse(hook, takes)
    elif "runner" in names and points <= known["mmengine"]:
        return "mmengine"
    candidates = [dialect for dialect, methods in known.items() if points <= methods]
    fitting = ", ".join(candidates) or ", ".join(known)
    raise ValueError(
        f"cannot tell the dialect of {type(hook).__name__} from its points "
        f"({', '.join(sorted(points))}): it may be {fitting}; say HookAdapter(..., dialect=...)"
    )


def _mmcv_or_refuse(hook: Any, takes: Mapping[str, list[str]]) -> str:
    for point in sorted(takes):
        required = _required(getattr(hook, point))
        if required > 1:
            raise ValueError(
                f"cannot tell the dialect of {type(hook).__name__}: {point} takes {required} "
                "arguments, where mmcv's takes the runner alone; say HookAdapter(..., dialect=...)"
            )
    return "mmcv"


def _signature(method: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        return []


def _parameters(method: Any) -> list[str]:
    return [parameter.name for parameter in _signature(method)]


def _required(method: Any) -> int:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.default is p.empty and p.kind in positional for p in _signature(method))
