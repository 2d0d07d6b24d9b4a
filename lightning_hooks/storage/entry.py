"""One checkpoint of a directory's list: check what is listed, compare it with the file, delete it.

The list may have come from a stranger. Its names lead to regular files, or to folders of shards,
below the directory and through no symbolic link; others lead nowhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import posixpath
import re
import reprlib
import stat
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import checksum, checksum_of, has_checksum
from lightning_hooks.storage.file_names import is_inside

__all__ = ["Entry", "flaw", "is_folder_of_shards", "parse", "remove"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file.

    Args:
        name: Its path from the directory.
        size: Its bytes; None for a folder, and for a file that another writer had not finished.
        crc32: The checksum of all its bytes, eight hexadecimal digits; None as above, and for a
            remote file that another writer has made.
        epoch: Epochs done.
        iter: Iterations done.
        time: When its contents were taken, ISO 8601.
        run: The run that has written it; a run that is resumed keeps its name.
        series: The hook, and the key, within the run: files of one series supersede each other.
        resumable: Whether a run can be resumed from it, or it is for loading weights.
        score: What a file among the best was written for.
        rule: Which scores of its series are better, ``"greater"`` or ``"less"``.
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


_KINDS = typing.get_type_hints(Entry)


def parse(fields: Any) -> Entry:
    """Return the entry of a list's fields.

    Raises:
        TypeError: for other fields, or values of other types.
        ValueError: for a name that leads elsewhere.
    """
    if not isinstance(fields, dict):
        raise TypeError(f"an entry is {reprlib.repr(fields)}")
    entry = Entry(**fields)
    for field, kind in _KINDS.items():
        value = getattr(entry, field)
        if not isinstance(value, kind):
            raise TypeError(f"{field} is {reprlib.repr(value)}")
    name = entry.name
    os.fsencode(name)  # which refuses what no file system takes
    if not is_inside(name) or name == "." or name != posixpath.normpath(name):
        raise ValueError(f"{reprlib.repr(name)} is no name of a file in the directory")
    return entry


def flaw(directory: str, entry: Entry, *, in_full: bool = True) -> str:
    """Describe how a file differs from its entry; return an empty string if it does not.

    Args:
        directory: The directory of the list.
        entry: The entry.
        in_full: Whether the contents are compared too, which have to be read.
    """
    path, crc32 = files.join(directory, entry.name), entry.crc32 if in_full else None
    try:
        if not files.is_local(path):
            difference = _difference(entry, files.size_of(path))
            return difference or _damage(crc32, crc32 and checksum(path))
        with _place_of(directory, entry.name) as place:
            if stat.S_ISDIR(place.stat().st_mode):
                is_whole = entry.size is None and _has_shards(place)
                return "" if is_whole else "is a folder, and no checkpoint"
            with place.opened() as file:
                difference = _difference(entry, os.fstat(file.fileno()).st_size)
                return difference or _damage(crc32, crc32 and checksum_of(file))
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return _reason(error)


def remove(directory: str, entry: Entry) -> str:
    """Delete a listed checkpoint; return the reason for which it stays, or an empty string.

    A file goes if it is a regular one of the recorded size and checksum. That is its own, of its
    records, where it is an archive: a bit that was flipped since is no reason to keep it. A folder
    goes if there is nothing in it but shards. In a remote directory, which has no links, the size
    decides, since a checksum would mean a download.
    """
    path = files.join(directory, entry.name)
    try:
        if not files.is_local(path):
            size = files.size_of(path)
            problem = _difference(entry, size) if entry.size else "has no size in the list"
            if not problem:
                files.remove(path)
            return problem
        with _place_of(directory, entry.name) as place:
            if stat.S_ISDIR(place.stat().st_mode):
                return _remove_shards(place) if entry.size is None else "is a folder"
            return _remove_file(place, entry)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _reason(error)


def _difference(entry: Entry, size: int | None) -> str:
    if size is None:
        return "is a folder"
    return f"has {size} bytes of {entry.size}" if entry.size not in (size, None) else ""


def _damage(listed: str | None, found: str | None) -> str:
    if found == listed:
        return ""
    return f"is damaged: its CRC-32 is {found}, it was written with {listed}"


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "is behind a symbolic link, or a file where a folder should be"
    return f"cannot be opened: {error.strerror}"


# -- below a directory, through no link ----------------------------------------------------------

_BY_DESCRIPTOR = {os.open, os.stat, os.unlink, os.rmdir} <= os.supports_dir_fd
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe would wait
_SHARD = re.compile(r"\.metadata(\.tmp)?|meta\.pt|__\d+_\d+\.distcp")
_MARKS = (".metadata", "latest")  # the last file that torch writes, and DeepSpeed


class _Place(NamedTuple):
    """A name in an open folder; where folders cannot be opened (Windows), a path."""

    name: str
    folder: int | None

    def open(self, flags: int = 0) -> int:
        """Open what is there, which is no link."""
        return os.open(self.name, os.O_RDONLY | _NO_LINK | _NO_WAIT | flags, dir_fd=self.folder)

    def opened(self) -> typing.IO[bytes]:
        """Open the regular file that is there."""
        descriptor = self.open()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", self.name)
        return open(descriptor, "rb")

    def stat(self) -> os.stat_result:
        """Return what the system has about what is there, a link itself too."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    @contextlib.contextmanager
    def listed(self) -> Iterator[list[_Place]]:
        """Open the folder that is there, and yield what is in it."""
        if self.folder is None:
            yield [_Place(os.path.join(self.name, name), None) for name in os.listdir(self.name)]
            return
        folder = self.open(_FOLDER)
        try:
            yield [_Place(name, folder) for name in os.listdir(folder)]
        finally:
            os.close(folder)


@contextlib.contextmanager
def _place_of(directory: str, name: str) -> Iterator[_Place]:
    """Open the folders on the way to a name, none of which is a link.

    Raises:
        OSError: if one is.
    """
    directory = directory.removeprefix("file://") or "."
    *folders, last = name.split("/")
    if not _BY_DESCRIPTOR:
        path, real = os.path.join(directory, *folders, last), os.path.realpath(directory)
        if os.path.realpath(path) != os.path.join(real, *folders, last):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield _Place(path, None)
        return
    with contextlib.ExitStack() as stack:
        folder = os.open(directory, os.O_RDONLY | _FOLDER)  # which the user has chosen
        stack.callback(os.close, folder)
        for part in folders:
            folder = _Place(part, folder).open(_FOLDER)
            stack.callback(os.close, folder)
        yield _Place(last, folder)


def _remove_file(place: _Place, entry: Entry) -> str:
    if entry.size is None or entry.crc32 is None:
        return "has no size and checksum in the list"
    with place.opened() as file:
        there = os.fstat(file.fileno())
        problem = _difference(entry, there.st_size)
        if problem or not has_checksum(file, entry.crc32):
            return problem or "has another checksum than the list"
    if os.path.samestat(there, place.stat()):
        os.unlink(place.name, dir_fd=place.folder)
    return ""


def is_folder_of_shards(path: str) -> bool:
    """Return whether a local folder is a checkpoint that a strategy has written in parts."""
    with _place_of(os.path.dirname(os.path.abspath(path)), os.path.basename(path)) as place:
        return _has_shards(place)


def _has_shards(place: _Place) -> bool:
    with place.listed() as parts:
        named = [part for part in parts if os.path.basename(part.name) in _MARKS]
        return any(stat.S_ISREG(part.stat().st_mode) for part in named)


def _remove_shards(place: _Place) -> str:
    with place.listed() as parts:
        shards = [p for p in parts if _SHARD.fullmatch(os.path.basename(p.name))]
        regular = all(stat.S_ISREG(part.stat().st_mode) for part in parts)
        if not parts or not regular or len(shards) != len(parts):
            return "is a folder with more in it than the shards of a checkpoint"
        for part in shards:
            os.unlink(part.name, dir_fd=part.folder)
    os.rmdir(place.name, dir_fd=place.folder)
    return ""
