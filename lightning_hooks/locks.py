"""Locks of files and directories that the operating system keeps: they go with their process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["locked"]


@contextlib.contextmanager
def locked(path: str, flags: int = os.O_RDONLY, *, wait: bool = True) -> Iterator[bool | None]:
    """Hold the lock of a file or directory inside the block, and say whether it is held.

    True if it is, False if another process holds it, and None where there are no locks: on some
    network file systems, and on Windows, where a directory cannot be opened either.

    Args:
        path: What is locked. It is opened for that, and need not be writable.
        flags: How it is opened, those of ``os.open``.
        wait: Whether another process's lock is waited for.
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    descriptor = os.open(path, flags, 0o666)
    held: bool | None = None
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                held = True
            except BlockingIOError:
                held = False
        yield held
    finally:
        # not by closing alone: what was forked meanwhile, a loader's worker say, has it open too
        if held:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
