"""Suggest the closest name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UnknownNameError", "closest", "suggest"]


FEW = 12
"""So many names a message can list."""


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


def suggest(name: str, known: Iterable[str], listed_by: str = "") -> str:
    """Return up to three close names; all of them if they are few, else what lists them.

    Args:
        name: The wrong name.
        known: The right ones.
        listed_by: A command or an expression that lists them; without one some are listed.

    >>> suggest("EMAHok", ["EMAHook", "StepLrUpdaterHook"])
    "did you mean 'EMAHook'? Known: EMAHook, StepLrUpdaterHook"
    >>> suggest("linear", [f"linear_{n}" for n in range(40)])
    "did you mean 'linear_9', 'linear_8' or 'linear_7'?"
    >>> suggest("zzz", ["EMAHook"])
    'known: EMAHook'
    >>> suggest("zzz", [f"linear_{n}" for n in range(40)], "dir(module)")
    '`dir(module)` lists the 40 known names'
    """
    folded = {n.lower(): n for n in sorted(known)}
    names = [*folded.values()]
    close = [repr(folded[n]) for n in difflib.get_close_matches(name.lower(), folded)]
    if len(names) > FEW:
        if close:
            return f"did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"
        if listed_by:
            return f"`{listed_by}` lists the {len(names)} known names"
        names[FEW:] = [f"... ({len(names)} names)"]
    listing = ", ".join(names) or "none"
    return f"did you mean {close[0]}? Known: {listing}" if close else f"known: {listing}"
