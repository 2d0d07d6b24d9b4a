"""Hooks of mmcv's that this version of the package does not have: they say so when made.

Old files import them beside others, and are not stopped by that.
"""

from __future__ import annotations

from typing import Any

import lightning_hooks

__all__ = ["placeholder"]


def placeholder(name: str) -> type:
    """Return a class of mmcv's family that cannot be made."""
    family = lightning_hooks.LoggerHook if "Logger" in name else lightning_hooks.OptimizerHook

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{name} is not in lightning_hooks {lightning_hooks.__version__}; for half precision "
            'give the Trainer precision="bf16-mixed", for a log one of the other loggers'
        )

    return type(name, (family,), {"__init__": refuse, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not name.endswith("Hook"):
        raise AttributeError(name)
    found = globals()[name] = placeholder(name)
    return found
