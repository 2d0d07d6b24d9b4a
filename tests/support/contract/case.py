"""The type of the contract's cases."""

from __future__ import annotations

from typing import Any

__all__ = ["Case"]

Case = tuple[dict[str, Any], dict[str, Any] | None]
"""Arguments that a hook is made with, and some that it refuses; None: it takes none."""
