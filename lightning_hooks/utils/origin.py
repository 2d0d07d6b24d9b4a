"""Tell what is defined in this package from a user's and other packages' code."""

from __future__ import annotations

from typing import Any

__all__ = ["is_ours"]


def is_ours(value: Any) -> bool:
    """Return whether a class, a function or a method is defined in this package.

    >>> is_ours(is_ours), is_ours(dict)
    (True, False)
    """
    return str(getattr(value, "__module__", "")).startswith("lightning_hooks.")
