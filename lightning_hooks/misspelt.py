"""Methods that nobody calls because their names are those of points, but for a letter."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from lightning_hooks.points import GENERIC, STAGES

__all__ = ["misspelt"]

POINTS = [*STAGES, *dict.fromkeys(GENERIC.values())]

OWN = ("lightning_hooks", "lightning", "mmcv", "mmengine")
"""Packages whose classes have the names that they want."""


def misspelt(hook: Any) -> Iterator[tuple[str, str]]:
    """Yield the names in a hook's classes, but ours, that look like a point, and that point.

    >>> late = type("Late", (), {"after_train_iters": print, "__module__": "my_hooks"})()
    >>> list(misspelt(late))
    [('after_train_iters', 'after_train_iter')]
    """
    classes = [c for c in type(hook).__mro__[:-1] if c.__module__.partition(".")[0] not in OWN]
    for name in dict.fromkeys(name for cls in classes for name in vars(cls)):
        if name in POINTS or name.startswith("_") or not callable(getattr(hook, name, None)):
            continue
        for point in difflib.get_close_matches(name, POINTS, n=1, cutoff=0.9):
            yield name, point
