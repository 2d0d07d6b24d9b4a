"""One line of log in a process, for what happens many times."""

from __future__ import annotations

import functools
import os

from lightning_hooks.utils.default_logger import default_logger

__all__ = ["notice"]


@functools.cache
def notice(message: str) -> None:
    """Log a message once in a process, on rank 0."""
    default_logger(int(os.environ.get("RANK") or 0)).info(message)
