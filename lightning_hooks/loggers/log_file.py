"""``LogFile``: a text file of a run, appended line by line and continued by a resumed run."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import zlib
from collections.abc import Mapping
from typing import Any

import fsspec

from lightning_hooks.storage import files
from lightning_hooks.utils.secrets import describe

__all__ = ["LogFile", "append", "create", "read"]

_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def create(path: str) -> bool:
    """Create an empty file; return False if the file existed.

    Of two simultaneous processes only one creates a local file. Errors other than an existing
    file return True: the first line will warn.
    """
    try:
        if files.is_local(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(_open(path, _APPENDING | os.O_EXCL))
            return True
        fs, target = files.filesystem(path)
        return not fs.exists(target)
    except FileExistsError:
        return False
    except Exception:  # the first line will warn
        return True


def _open(path: str, flags: int) -> int:
    """Open a regular file without following links."""
    options = "O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"  # a pipe without a reader would block
    file = os.open(path, flags | sum(getattr(os, name, 0) for name in options), 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no regular file", path)
    return file


def append(path: str, data: bytes) -> None:
    """Append to a local or remote file; a full disk takes no part of the data."""
    if not files.is_local(path):
        with fsspec.open(path, "ab") as remote:
            remote.write(data)
        return
    file = _open(path, _APPENDING)  # fsspec would take half a millisecond, open() twice the calls
    try:
        written = os.write(file, data)
        if written < len(data):
            os.ftruncate(file, os.fstat(file).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def read(path: str) -> bytes:
    """Return the content of a local or remote file; empty if missing or unreadable."""
    try:
        local = os.fdopen(_open(path, os.O_RDONLY), "rb") if files.is_local(path) else None
        with local or fsspec.open(path, "rb") as file:
            return bytes(file.read())
    except OSError:
        return b""


class LogFile:
    """Appends lines to a file in a work dir, local or on a file system of fsspec.

    The file is closed after each line, so a kill loses no line. A failed write costs one warning,
    not the run.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._failed = False
        self._measure: tuple[int, int] | None = None  # size and CRC-32; None: not read yet
        if files.is_local(path):
            with contextlib.suppress(OSError):  # the first line will warn
                os.makedirs(os.path.dirname(path), exist_ok=True)

    @property
    def name(self) -> str:
        """The file's name in the work dir."""
        return self.path.rpartition("/" if "://" in self.path else os.sep)[2]

    def append(self, line: str, logger: logging.Logger) -> None:
        """Add a line.

        Args:
            line: The text without a newline.
            logger: Warns if the file cannot be written.
        """
        if self._failed:
            return
        data = line.encode(errors="backslashreplace") + b"\n"
        size, crc = self._measured()
        try:
            append(self.path, data)
            self._measure = size + len(data), zlib.crc32(data, crc)
        except Exception as error:  # a full disk, a lost mount: training goes on
            self._failed = True
            logger.warning(
                "%s cannot be written (%s); this run goes on without it",
                *(self.path, describe(error)),
            )

    def state(self) -> dict[str, Any]:
        """Return the file's ``size`` and ``crc32`` now, for a checkpoint."""
        size, crc = self._measured()
        return {"size": size, "crc32": crc}

    def _measured(self) -> tuple[int, int]:
        """Return size and CRC-32; the file is read only once."""
        if self._measure is None:
            content = read(self.path)
            self._measure = len(content), zlib.crc32(content)
        return self._measure

    def cut_back(self, state: Mapping[str, Any], logger: logging.Logger) -> bool:
        """Remove the lines written after a checkpoint; return whether the file had any content.

        A file with another beginning than at the time of the checkpoint is left unchanged, with a
        warning.

        Args:
            state: Result of :meth:`state` from the checkpoint.
            logger: Warns if the file cannot be cut back.
        """
        content = read(self.path)
        start = content[: state["size"]]
        if len(start) == state["size"] and zlib.crc32(start) == state["crc32"]:
            if len(content) > len(start):
                self._truncate(start, logger)
            self._measure = None
        elif content:
            logger.warning(
                "%s is not what it was when the checkpoint was written: it is not cut back",
                self.path,
            )
        return bool(content)

    def _truncate(self, start: bytes, logger: logging.Logger) -> None:
        try:
            if files.is_local(self.path):
                with os.fdopen(_open(self.path, os.O_RDWR), "r+b") as file:
                    file.truncate(len(start))
            else:
                fs, target = files.filesystem(self.path)
                fs.pipe_file(target, start)
        except OSError as error:
            logger.warning("%s cannot be cut back: %s", self.path, error)
