"""The hook families."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Say where a hook is imported from: mmcv's are imported from such a package."""
    if not name.endswith("Hook"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(f"write `from lightning_hooks import {name}`")
