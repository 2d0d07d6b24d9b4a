"""Keep a file under another name until it has been sent, whatever becomes of the file itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

__all__ = ["discard", "stage"]


def stage(path: str, directory: str, prefix: str, name: str) -> str:
    """Put a file into a new folder, where it stays when it is deleted; return its new path.

    That costs nothing, whatever the size. On another disk, or one without links, it is a copy.

    Args:
        path: The file.
        directory: The directory of the new folder.
        prefix: The beginning of the folder's name.
        name: The file's name in it.

    Raises:
        OSError: if that is not possible.
    """
    folder = tempfile.mkdtemp(prefix=prefix, dir=directory)
    target = os.path.join(folder, name)
    try:
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
    except BaseException:
        discard(target)
        raise
    return target


def discard(path: str) -> None:
    """Delete a file and its folder, if there is nothing else in it."""
    for remove, what in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
        with contextlib.suppress(OSError):
            remove(what)
