"""Suggest the closest name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UnknownNameError", "closest", "suggest"]


class UnknownNameError(KeyError, ValueError):
    """A name that is not in its table.

    A KeyError, as mmcv raises, and a ValueError, as bad input is elsewhere in this package.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a wrong one, if any is.

    >>> closest("nevr", ["allow", "never"]), closest("zzz", ["allow", "never"])
    ('never', None)
    """
    folded = {n.lower(): n for n in known}
    found = difflib.get_close_matches(name.lower(), folded, n=1)
    return folded[found[0]] if found else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the closest known name, and all of them, for a message.

    >>> suggest("EMAHok", ["EMAHook", "StepLrUpdaterHook"])
    "did you mean 'EMAHook'? Known: EMAHook, StepLrUpdaterHook"
    >>> suggest("zzz", ["EMAHook"])
    'known: EMAHook'
    """
    names = sorted(known)
    close = closest(name, names)
    listing = ", ".join(names) or "none"
    if close is not None:
        return f"did you mean {close!r}? Known: {listing}"
    return f"known: {listing}"
