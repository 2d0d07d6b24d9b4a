"""Add a note to an error, on every supported Python."""

from __future__ import annotations

__all__ = ["add_note"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note as ``error.add_note()`` does, which came with Python 3.11.

    >>> error = ValueError("no number")
    >>> add_note(error, "in the first line")
    >>> error.__notes__
    ['in the first line']
    """
    error.__notes__ = [*getattr(error, "__notes__", []), note]
