"""Keep control characters of untrusted names out of lines and of file names."""

from __future__ import annotations

import re

__all__ = ["CONTROL", "printable"]

CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tabs, separators of lines, marks of direction, lone surrogates."""


def printable(text: str) -> str:
    r"""Return a text as one line for a terminal or a log, with escapes for control characters.

    >>> print(printable("loss 学\n\x1b[31m \ud800"))
    loss 学\n\x1b[31m \ud800
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
