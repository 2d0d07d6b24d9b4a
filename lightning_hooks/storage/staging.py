"""Keep a file under a second name until an upload, even if the file is deleted meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

__all__ = ["discard", "stage"]


def stage(path: str, directory: str, prefix: str, name: str) -> str:
    """Link a file into a new folder, and return the new path.

    A hard link costs no time, whatever the size. The file is copied to another disk, or to a disk
    without links.

    Args:
        path: The file.
        directory: The directory of the new folder.
        prefix: The beginning of the folder's name.
        name: The file name in the folder.

    Raises:
        OSError: if the file can be neither linked nor copied.
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
    """Delete a file, and its folder if empty then."""
    for remove, what in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
        with contextlib.suppress(OSError):
            remove(what)
