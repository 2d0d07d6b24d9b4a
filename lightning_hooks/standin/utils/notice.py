"""Log a line once in a process."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
from collections.abc import Iterator

from lightning_hooks.utils.default_logger import default_logger

__all__ = ["notice", "quiet"]

_quiet = False


@functools.cache
def notice(message: str) -> None:
    """Log a message once in a process, on rank 0, but not in workers of a pool or DataLoader."""
    if not (_quiet or multiprocessing.current_process().daemon):
        default_logger(int(os.environ.get("RANK") or 0)).info(message)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log nothing in the block, as another process has logged the same."""
    global _quiet
    _quiet = True
    try:
        yield
    finally:
        _quiet = False
