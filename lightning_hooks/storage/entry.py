"""``Entry``: a checkpoint in a directory's list, compared with the file and deleted.

The list may come from a stranger, so an entry has little power. The name must lead to a regular
file, or a folder of shards, below the directory and behind no symbolic link.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import posixpath
import reprlib
import typing
from collections.abc import Sequence
from typing import Any

from lightning_hooks.storage import files, shards
from lightning_hooks.storage.checksum import checksum, damage
from lightning_hooks.storage.file_names import is_inside

__all__ = ["Entry", "best_series", "intact_of", "parse"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A checkpoint in a list: name, size and checksum of the file, and the moment of the run.

    Args:
        name: The path relative to the directory.
        size: The size in bytes; None for a folder, and for a file that another writer had not
            finished.
        crc32: The checksum, eight hexadecimal digits, see :func:`~.checksum.checksum`, and of a
            folder :func:`~.shards.checksum`; None for a remote or an unfinished file.
        epoch: Epochs done.
        iter: Iterations done.
        time: When the file was listed, ISO 8601; orders nothing.
        run: The run that wrote the file; a resumed run keeps its name.
        series: The hook, and the key, within the run: a file supersedes older files of its series.
        resumable: Whether a run can be resumed from the file; False for weights alone.
        score: The score of a file among the best.
        rule: Which scores of the series are better, ``"greater"`` or ``"less"``.
    """

    name: str
    size: int | None
    crc32: str | None
    epoch: int
    iter: int
    time: str
    run: str
    series: str
    resumable: bool = True
    score: int | float | None = None
    rule: str | None = None

    @functools.cached_property
    def line(self) -> str:
        """The line of the list, JSON; kept, as each save writes all lines."""
        return json.dumps(vars(self))

    @property
    def metric(self) -> str:
        """The name of the score."""
        return self.series.removeprefix(best_series(""))

    def flaw(self, directory: str, *, in_full: bool = True) -> str:
        """Describe how the file differs from the entry; an intact file gives an empty string.

        Args:
            directory: The directory of the list.
            in_full: Whether to read and compare the contents, not the size alone.
        """
        path = files.join(directory, self.name)
        try:
            problem = self._misplaced(directory)
            if not problem and _is_local_folder(path):
                if self.size is not None or not shards.is_folder_of_shards(path):
                    return "is a folder, and no checkpoint"
                return shards.damage(path, self.crc32) if in_full and self.crc32 else ""
            problem = problem or self._other_size(files.size_of(path))
            if problem or not in_full or self.size is None:
                return problem
            return damage(path, self.crc32)
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be opened: {error.strerror}"

    def remove(self, directory: str) -> str:
        """Delete the file; return the reason to keep the file, or an empty string.

        A local file is deleted if its size and checksum are the listed ones; the bytes of its
        tensors are not compared, so that a damaged file is deleted too. A folder is deleted if it
        holds nothing but shards. Of a remote file only the size is compared, since a checksum would
        need a download.
        """
        path = files.join(directory, self.name)
        try:
            problem = self._misplaced(directory)
            if not problem and _is_local_folder(path):
                return shards.remove(path) if self.size is None else "is a folder"
            problem = problem or self._other_size(files.size_of(path))
            problem = problem or self._other_contents(path)
            if not problem:
                files.remove(path)
            return problem
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"cannot be opened: {error.strerror}"

    def _misplaced(self, directory: str) -> str:
        """Return the reason not to follow the name, or an empty string."""
        if not files.is_local(directory):
            return ""
        path = files.plain(directory)
        for part in self.name.split("/"):
            path = os.path.join(path, part)
            if os.path.islink(path):
                return "is behind a symbolic link"
        if os.path.lexists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            return "is no regular file"
        return ""

    def _other_size(self, size: int | None) -> str:
        if size is None:
            return "is a folder"
        return f"has {size} bytes of {self.size}" if self.size not in (size, None) else ""

    def _other_contents(self, path: str) -> str:
        """Return the reason to doubt a file of the right size, or an empty string."""
        if not files.is_local(path):
            return "" if self.size else "has no size in the list"
        if self.size is None or self.crc32 is None:
            return "has no size and checksum in the list"
        return "" if self.crc32 == checksum(path) else "has another checksum than the list"


def best_series(key: str) -> str:
    """Return the name of the series of best files by a key."""
    return f"best {key}"


_KINDS = typing.get_type_hints(Entry)


def parse(fields: Any) -> Entry:
    """Make an entry from the fields in a list, after checking them.

    Raises:
        TypeError: for unknown or missing fields, or values of a wrong type.
        ValueError: for a name outside the directory.
    """
    if not isinstance(fields, dict):
        raise TypeError(f"an entry is {reprlib.repr(fields)}")
    entry = Entry(**fields)
    for field, kind in _KINDS.items():
        value = getattr(entry, field)
        if not isinstance(value, kind):
            raise TypeError(f"{field} is {reprlib.repr(value)}")
    name = entry.name
    os.fsencode(name)  # raises for a name that no file system takes
    if not is_inside(name) or name == "." or name != posixpath.normpath(name):
        raise ValueError(f"{reprlib.repr(name)} is no name of a file in the directory")
    return entry


def intact_of(directory: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the last entry with the present file's checksum, None without any.

    The file is read a few times, whatever the number of entries.

    Args:
        directory: The directory of the list.
        entries: The entries of a local file.
    """
    path = files.join(directory, entries[0].name)
    if entries[0]._misplaced(directory) or not os.path.isfile(files.plain(path)):
        return None
    size, sums = files.size_of(path), (None, checksum(path))
    alike = {(e.size, e.crc32): e for e in entries if e.size == size and e.crc32 in sums}
    return next((entry for entry in reversed(alike.values()) if not entry.flaw(directory)), None)


def _is_local_folder(path: str) -> bool:
    return files.is_local(path) and os.path.isdir(files.plain(path))
