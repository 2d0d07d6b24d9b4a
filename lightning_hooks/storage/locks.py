"""Lock local files and directories against other processes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator

import filelock

from lightning_hooks.utils.regular_files import regular

__all__ = ["locked"]

POLL_INTERVAL = 0.005
"""Seconds between attempts to take another process's lock."""
PATIENCE = 5.0
"""Seconds of a wait for a lock after which the log tells of the wait."""

_LOCKS: dict[object, int] = {}  # descriptors of the locks that this process holds


def _forget_locks() -> None:
    """Close the descriptors in a forked process: a lock ends with the process that took it."""
    for descriptor in _LOCKS.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _LOCKS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def locked(path: str, flags: int = os.O_RDONLY, *, wait: bool = True) -> Iterator[bool | None]:
    """Lock a file or directory inside the block, or until the process ends; yield the success.

    Without support for locks, as on some network file systems, yield None. NFS 3 needs a running
    ``lockd`` and locks only files open for writing, so no directory.

    Windows can neither open a directory nor write a locked file. On Windows a file
    ``<path>.lock``, or ``.lock`` in the directory, is locked instead, and deleted afterwards.

    Args:
        path: The file or directory; a read-only path will do.
        flags: The flags of ``os.open``.
        wait: Whether to wait for another process's lock; else yield False for a locked file.
    """
    beside = ""
    if sys.platform == "win32":
        beside = os.path.join(path, ".lock") if os.path.isdir(path) else f"{path}.lock"
    descriptor = regular(beside or path, os.O_RDWR | os.O_CREAT if beside else flags)
    _LOCKS[holder := object()] = descriptor
    is_locked = None
    try:
        with contextlib.suppress(OSError):
            is_locked = _lock(descriptor, beside or path, wait)
        yield is_locked
    finally:
        if _LOCKS.pop(holder, None) is not None:  # else in a forked process, without the lock
            if is_locked:
                with contextlib.suppress(OSError):
                    filelock.unlock_descriptor(descriptor)
            os.close(descriptor)
        if beside and is_locked is not False:
            with contextlib.suppress(OSError):  # another process has it open
                os.unlink(beside)


def _lock(descriptor: int, path: str, wait: bool) -> bool:
    begin, is_told = time.monotonic(), False
    while not filelock.lock_descriptor(descriptor, blocking=False):
        if not wait:
            return False
        if not is_told and time.monotonic() - begin > PATIENCE:
            is_told = True
            logging.getLogger("lightning_hooks").warning(
                "waiting for the lock of %s, which %s holds; Ctrl-C ends the wait",
                *(path, _holder(descriptor)),
            )
        time.sleep(POLL_INTERVAL)
    return True


def _holder(descriptor: int) -> str:
    """Return the name of the process with a lock, as far as the system tells."""
    with contextlib.suppress(OSError, ValueError), open("/proc/locks", encoding="utf-8") as table:
        inode = f":{os.fstat(descriptor).st_ino}"
        for _, _, _, _, process, place, *_ in map(str.split, table):
            if place.endswith(inode):
                with open(f"/proc/{process}/comm", encoding="utf-8") as name:
                    return f"process {process} ({name.read().strip()})"
    return "another process"
