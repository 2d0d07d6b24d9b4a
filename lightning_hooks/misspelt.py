"""Methods that nobody calls because their names are those of points, but for a letter."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator
from typing import Any

from lightning_hooks.points import GENERIC, STAGES

__all__ = ["misspelt"]

POINTS = [*STAGES, *dict.fromkeys(GENERIC.values())]

OWN = ("lightning_hooks", "lightning", "mmcv", "mmengine")
"""Packages whose classes have the names that they want."""


def misspelt(hook: Any) -> Iterator[tuple[str, str]]:
    """Yield the names in a hook's classes, but ours, that look like a point, and that point.

    >>> class Late:
    ...     __module__ = "my_hooks"
    ...     def after_train_iters(self, runner): ...
    >>> list(misspelt(Late()))
    [('after_train_iters', 'after_train_iter')]
    """
    classes = [c for c in type(hook).__mro__[:-1] if c.__module__.partition(".")[0] not in OWN]
    found = {name: value for cls in classes for name, value in vars(cls).items()}
    for name, value in found.items():
        # a property is not asked for: it may have no value yet
        if not isinstance(value, types.FunctionType) or name in POINTS or name.startswith("_"):
            continue
        for point in difflib.get_close_matches(name, POINTS, n=1, cutoff=0.9):
            yield name, point
