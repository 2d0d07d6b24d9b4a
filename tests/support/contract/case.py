"""The type of the contract's cases."""

from __future__ import annotations

from typing import Any

__all__ = ["Case"]

Case = tuple[dict[str, Any], dict[str, Any] | None]
"""Valid and invalid arguments of a hook; None for a hook without arguments."""
