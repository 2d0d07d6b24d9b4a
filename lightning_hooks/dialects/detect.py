"""Detect the library of a hook from its base class, its points and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback

from lightning_hooks.dialects.dialect import DIALECTS
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.points import POINTS, STAGES
from lightning_hooks.utils.arguments import check_object
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["EPOCH_POINTS", "MMCV", "PACKAGES", "detect"]

MMCV = frozenset(POINTS)
"""The points of an mmcv hook."""

EPOCH_POINTS = ("before_epoch", "after_epoch")
"""Points of fast-reid's hooks; a loop of steps has no epochs."""

PACKAGES = {
    "mmengine": "mmengine",
    "detectron2": "detectron2",
    "cvpods": "cvpods",
    "cvpack2": "cvpods",
    "pet": "pet",
    "pointrix": "pointrix",
    "mmcv": "mmcv",
}
"""The dialect of a hook by the package of its base class."""


def detect(hook: Any, dialect: str = "auto") -> str:
    """Return the dialect of a hook.

    Args:
        hook: A hook object.
        dialect: The user's choice, or ``"auto"``.

    Raises:
        UnknownNameError: if ``dialect`` is unknown.
        TypeError: for an object without a point of the dialect, or of any dialect.
        ValueError: if several dialects are possible.
    """
    points_of = {"mmcv": MMCV, **{name: known.methods for name, known in DIALECTS.items()}}
    if dialect not in ("auto", *points_of):
        close = suggest(dialect, ["auto", *points_of])
        raise UnknownNameError(f"unknown dialect {dialect!r}; {close}")
    name = type(hook).__name__
    check_object(hook)
    if isinstance(hook, (str, Mapping)):
        config = repr(hook) if isinstance(hook, Mapping) else f"dict(type={hook!r})"
        raise TypeError(
            f"a hook must be an object, got {hook!r}; write HookAdapter([{config}]), "
            f"or runner.register_hook_from_cfg({config})"
        )
    if isinstance(hook, (list, tuple)):
        raise TypeError(f"a {name} among the hooks: give all in one list, HookAdapter([*hooks])")
    if isinstance(hook, Participant):
        return "mmcv"
    points = {p for names in points_of.values() for p in names if callable(getattr(hook, p, None))}
    by_base = _by_base(hook)
    if dialect == "auto":
        if by_base is not None:
            return by_base
        if points:
            return _by_points(hook, points, points_of)
        if isinstance(hook, Callback):
            raise TypeError(f"{name} is Lightning's own: give it to Trainer(callbacks=[...])")
        raise TypeError(
            f"{name} object has none of the points of a hook ({', '.join(sorted(STAGES))}, ...)"
        )
    if not points & points_of[dialect] and by_base != dialect:
        found = sorted(points) or "none of a hook"
        raise TypeError(f"{name} has no point of the dialect {dialect!r}, only {found}")
    return dialect


def _by_base(hook: Any) -> str | None:
    """Return the dialect of the nearest base class: ``hook_dialect``, or the class's package."""
    for base in type(hook).__mro__:
        declared = vars(base).get("hook_dialect")
        if isinstance(declared, str) and declared in DIALECTS:
            return declared
        package = base.__module__.partition(".")[0]
        if package in PACKAGES:
            return PACKAGES[package]
    return None


def _by_points(hook: Any, points: set[str], points_of: Mapping[str, frozenset[str]]) -> str:
    """Return the only dialect with the hook's points and their arguments.

    Raises:
        ValueError: if several dialects match, or none.
    """
    arguments = {name for point in points for name in _argument_names(getattr(hook, point))}
    if arguments & {"batch_idx", "data_batch", "metrics"}:
        return "mmengine"
    if "trainner" in arguments:  # pointrix's own spelling
        return "pointrix"
    if points & {"before_step", "after_step"}:
        if "after_backward" in points:
            return "detectron2"
        if arguments & {"storage", "kwargs", "max_epochs"}:
            return "pet"
    elif points <= MMCV:
        return "mmcv"
    elif "runner" in arguments and points <= points_of["mmengine"]:
        return "mmengine"
    possible = [dialect for dialect, known in points_of.items() if points <= known] or points_of
    raise ValueError(
        f"cannot detect the dialect of {type(hook).__name__} from its points "
        f"({', '.join(sorted(points))}): it may be {', '.join(possible)}; "
        "write HookAdapter(..., dialect=...)"
    )


def _argument_names(method: Any) -> set[str]:
    try:
        return {*inspect.signature(method).parameters}
    except (TypeError, ValueError):
        return set()
