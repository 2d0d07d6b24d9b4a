"""The hook families."""

from typing import Any

from lightning_hooks._exports import HOMES, unknown_name_error


def __getattr__(name: str) -> Any:
    """Raise an error with the right import for a hook; mmcv has its hooks in such a package."""
    if name not in HOMES:  # a module of this package, not imported yet
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise unknown_name_error(__name__, name, f"write `from lightning_hooks import {name}`")
