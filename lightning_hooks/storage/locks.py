"""Locks of files and directories that the operating system keeps: they go with their process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO, Any

try:
    import fcntl
except ImportError:  # on Windows nobody holds anything
    fcntl = None  # type: ignore[assignment]

__all__ = ["hold", "let_go", "locked"]


def hold(file: int | IO[Any], *, wait: bool = False) -> bool | None:
    """Take the lock of an open file, and say whether it is held.

    True if it is, False if another process holds it, and None where there are no locks: on some
    network file systems, and on Windows.

    Args:
        file: Its descriptor, or what has one.
        wait: Whether another process's lock is waited for.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def let_go(file: int | IO[Any]) -> None:
    """Give the lock back: what was forked meanwhile, a loader's worker say, has the file open."""
    if fcntl is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(path: str, flags: int = os.O_RDONLY, *, wait: bool = True) -> Iterator[bool | None]:
    """Hold the lock of a file or directory inside the block, and say whether it is held.

    Args:
        path: What is locked. It is opened for that, and need not be writable.
        flags: How it is opened, those of ``os.open``.
        wait: Whether another process's lock is waited for.
    """
    if fcntl is None:  # and a directory cannot be opened there either
        yield None
        return
    descriptor = os.open(path, flags, 0o666)
    held = hold(descriptor, wait=wait)
    try:
        yield held
    finally:
        if held:
            let_go(descriptor)
        os.close(descriptor)
