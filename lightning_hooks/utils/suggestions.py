"""Suggest the closest name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UnknownNameError", "closest", "suggest"]


FEW = 12
"""The number of known names that a message lists."""


class UnknownNameError(KeyError, ValueError):
    """The error for an unknown name: a KeyError as in mmcv, and a ValueError as for other input."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to a wrong name; None if no name is close.

    >>> closest("nevr", ["allow", "never"]), closest("zzz", ["allow", "never"])
    ('never', None)
    """
    return next(iter(_alike(name, known)), None)


def suggest(
    name: object, known: Iterable[str], listed_by: str = "", synonyms: Iterable[str] = ()
) -> str:
    """Return a did-you-mean hint with up to three close names, and the known names if they are few.

    Args:
        name: The wrong name; of another type than str, no name is close.
        known: The known names.
        listed_by: A command or an expression that lists the known names; without it the first
            twelve are listed.
        synonyms: Names with the meaning of the wrong name; the first known one is suggested alone.

    >>> suggest("EMAHok", ["EMAHook", "StepLrUpdaterHook"])
    "did you mean 'EMAHook'? Known: EMAHook, StepLrUpdaterHook"
    >>> suggest("linear", [f"linear_{n}" for n in range(40)])
    "did you mean 'linear_0', 'linear_1' or 'linear_10'?"
    >>> suggest("acc", ["accuracy", "loss"]), suggest("zzz", ["EMAHook"])
    ("did you mean 'accuracy'? Known: accuracy, loss", 'known: EMAHook')
    >>> suggest("mode", [f"model_{n}" for n in range(40)] + ["rule"], synonyms=["rule"])
    "did you mean 'rule'?"
    >>> suggest("zzz", [f"linear_{n}" for n in range(40)], "dir(module)")
    '`dir(module)` lists the 40 known names'
    """
    names = sorted(known)
    alike = _alike(name, names, synonyms) if isinstance(name, str) else []
    close = [*map(repr, alike)]
    if len(names) > FEW:
        if close:
            return f"did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"
        if listed_by:
            return f"`{listed_by}` lists the {len(names)} known names"
        names[FEW:] = [f"... ({len(names)} names)"]
    listing = ", ".join(names) or "none"
    return f"did you mean {close[0]}? Known: {listing}" if close else f"known: {listing}"


def _alike(name: str, known: Iterable[str], synonyms: Iterable[str] = ()) -> list[str]:
    """Return the first known synonym, else up to three names with similar letters."""
    folded = {n.lower(): n for n in known}
    wrong = name.lower()
    meant = [n for n in synonyms if n in folded][:1]
    longer = [n for n in folded if len(wrong) > 2 and n.startswith(wrong)]
    parts = [n for n in folded if min(len(n), len(wrong)) > 2 and (wrong in n or n in wrong)]
    parts = [n for n in parts if n != "hook"]  # part of every hook's name
    candidates = meant or dict.fromkeys(
        [*longer, *difflib.get_close_matches(wrong, folded), *parts]
    )
    return [folded[n] for n in candidates][:3]
