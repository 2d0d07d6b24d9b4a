"""``LogFile``: a text file of a run, written line by line, that a resumed run goes on with."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import zlib
from collections.abc import Mapping
from typing import Any

import fsspec

from lightning_hooks.storage import files

__all__ = ["LogFile"]

APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class LogFile:
    """Appends lines to a file in a work dir, local or fsspec's.

    It is closed after each line, which is then out of our hands. A file that cannot be written
    costs one warning, not the run.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._failed = False
        self._written: tuple[int, int] | None = None  # size and CRC-32; None: not read yet
        if files.is_local(path):
            with contextlib.suppress(OSError):  # the first line will complain
                os.makedirs(os.path.dirname(path), exist_ok=True)

    @property
    def name(self) -> str:
        """Its name in the work dir."""
        return self.path.rpartition("/" if "://" in self.path else os.sep)[2]

    def append(self, line: str, logger: logging.Logger) -> None:
        """Add a line.

        Args:
            line: Without its end.
            logger: Where it is told that it could not be written.
        """
        if self._failed:
            return
        data = line.encode() + b"\n"
        size, crc = self._measured()
        try:
            # fsspec takes half a millisecond, which a folder on this machine need not cost
            if files.is_local(self.path):
                self._append_here(data)
            else:
                with fsspec.open(self.path, "ab") as file:
                    file.write(data)
            self._written = size + len(data), zlib.crc32(data, crc)
        except Exception as error:  # a full disk, a lost mount: training goes on
            self._failed = True
            logger.warning(
                "%s cannot be written (%s: %s); this run goes on without it",
                *(self.path, type(error).__name__, error),
            )

    def _append_here(self, data: bytes) -> None:
        file = os.open(self.path, APPENDING, 0o666)  # open() takes twice as many system calls
        try:
            written = os.write(file, data)
            if written < len(data):  # a full disk has taken a part, which is no line
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def state(self) -> dict[str, Any]:
        """Return what is in the file now, for a checkpoint: its ``size`` and ``crc32``."""
        size, crc = self._measured()
        return {"size": size, "crc32": crc}

    def _measured(self) -> tuple[int, int]:
        """Return size and CRC-32; the file is read only once, however long it grows."""
        if self._written is None:
            found = self._read()
            self._written = len(found), zlib.crc32(found)
        return self._written

    def cut_back(self, state: Mapping[str, Any], logger: logging.Logger) -> bool:
        """Drop what was written after a checkpoint; return whether there is something left.

        A file that does not begin with what the checkpoint knows is left as it is, and told of.

        Args:
            state: What :meth:`state` returned when the checkpoint was written.
            logger: Where it is told.
        """
        found = self._read()
        kept = found[: state["size"]]
        if len(kept) == state["size"] and zlib.crc32(kept) == state["crc32"]:
            if len(found) > len(kept):
                self._truncate(kept, logger)
            self._written = None
        elif found:
            logger.warning(
                "%s is not what it was when the checkpoint was written: it is not cut back",
                self.path,
            )
        return bool(found)

    def _read(self) -> bytes:
        try:
            with fsspec.open(self.path, "rb") as file:
                return bytes(file.read())
        except OSError:  # there is none, or none that can be read
            return b""

    def _truncate(self, kept: bytes, logger: logging.Logger) -> None:
        try:
            if files.is_local(self.path):
                os.truncate(self.path, len(kept))
            else:
                fs, target = files.filesystem(self.path)
                fs.pipe_file(target, kept)
        except OSError as error:
            logger.warning("%s cannot be cut back: %s", self.path, error)
