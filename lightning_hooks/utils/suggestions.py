"""Suggest the closest name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UnknownNameError", "suggest"]


class UnknownNameError(KeyError, ValueError):
    """A name that is not in its table.

    A KeyError, as mmcv raises, and a ValueError, as bad input is elsewhere in this package.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the closest known name, and all of them, for a message.

    >>> suggest("EMAHok", ["EMAHook", "StepLrUpdaterHook"])
    "did you mean 'EMAHook'? Known: EMAHook, StepLrUpdaterHook"
    >>> suggest("zzz", ["EMAHook"])
    'known: EMAHook'
    """
    names = sorted(known)
    folded = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    listing = ", ".join(names) or "none"
    if close:
        return f"did you mean {folded[close[0]]!r}? Known: {listing}"
    return f"known: {listing}"
