"""Text from files as a terminal can show it."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return a text with escapes for what a terminal would obey or cannot show.

    >>> printable("loss 学 \x1b[2J \ud800")
    'loss 学 \\x1b[2J \\ud800'
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
