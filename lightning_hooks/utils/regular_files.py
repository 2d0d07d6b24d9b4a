"""Open regular files alone: the bytes of a pipe or a device may never come, or never end."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["NotRegularError", "regular"]


class NotRegularError(OSError):
    """A pipe, a device or a socket is in the place of a file."""


def regular(path: str, flags: int) -> int:
    """Return the descriptor of a regular file or a directory: an ``opener`` for ``open``.

    Raises:
        NotRegularError: for a pipe, a device or a socket; with the path.

    >>> with open(os.devnull, opener=regular) as file:
    ...     pass
    Traceback (most recent call last):
    lightning_hooks.utils.regular_files.NotRegularError: [Errno 22] is no regular file: '/dev/null'
    """
    options = "O_BINARY", "O_CLOEXEC", "O_NONBLOCK"  # a pipe without a writer would block
    descriptor = os.open(path, flags | sum(getattr(os, name, 0) for name in options), 0o666)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "is no regular file", path)
    return descriptor
