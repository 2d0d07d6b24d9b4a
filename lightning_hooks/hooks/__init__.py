"""The hook families."""

from typing import Any

from lightning_hooks._exports import HOMES, absent


def __getattr__(name: str) -> Any:
    """Say where a hook is imported from: mmcv's are imported from such a package."""
    if name not in HOMES:  # a module here, which is not imported yet
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(__name__, name, f"write `from lightning_hooks import {name}`")
