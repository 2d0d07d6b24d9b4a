"""Make text from files safe to print in a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return a text with escapes in place of control characters and lone surrogates.

    >>> printable("loss 学 \x1b[2J \ud800")
    'loss 学 \\x1b[2J \\ud800'
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
