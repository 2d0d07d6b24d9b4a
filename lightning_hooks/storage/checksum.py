"""Checksums of checkpoint files, to find damage.

``torch.save`` writes a zip archive of records, with a table that has each record's CRC-32. The
checksum of a checkpoint is the CRC-32 of this table, so computing the checksum reads no tensor. A
checksum detects damage, not forgery: whoever changes a file can change its checksum too.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO
from zipfile import ZipFile, ZipInfo

from lightning_hooks.storage import files

__all__ = [
    "checksum",
    "crc32_of_bytes",
    "damage",
    "flaw",
    "remembered",
]

CHUNK = 1 << 20
ARCHIVE_HEAD = b"PK\x03\x04"
LEGACY_HEAD = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickled number at the beginning of files of torch before 1.6."""
SETTLED = 2.0
"""Seconds after a change of a file from which a further change has another time of change."""
MOST_REMEMBERED = 1000

_intact: set[tuple[object, ...]] = set()
"""The files found intact in this process: a resume asks of a file when it chooses the file, when it
loads the file, and when it deletes older files, and a read of a large file takes seconds."""


def checksum(path: str) -> str:
    """Return the checksum of a file for the list of checkpoints, eight hexadecimal digits.

    A torch archive has the CRC-32 of the table of records, any other file that of all bytes.
    """
    with files.opened(path) as file:
        return _crc32_of_table(file) or crc32_of_bytes(file)


def damage(path: str, expected: str | None) -> str:
    """Describe the damage of a file: a wrong checksum, or a record with a wrong CRC-32.

    A local file found intact is read again if its place, size or time of change differs, or if the
    file was changed less than ``SETTLED`` seconds before it was read.

    Args:
        path: The file.
        expected: The checksum in the list; None to compare the records alone.

    Returns:
        An empty string for an intact file.
    """
    if not files.is_local(path):
        return _damage(path, expected)
    status = os.stat(files.plain(path))
    return remembered([(path, status)], expected, partial(_damage, path, expected))


def remembered(
    statuses: Sequence[tuple[str, os.stat_result]], expected: str | None, find: Callable[[], str]
) -> str:
    """Return the damage of local files; do not look for it again in files found intact.

    Args:
        statuses: The paths of the files, each with its status.
        expected: The checksum in the list.
        find: Reads the files and describes the damage.
    """
    seen = (
        expected,
        *(
            (path, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
            for path, s in statuses
        ),
    )
    if seen in _intact:
        return ""
    problem = find()
    changed = max((max(s.st_mtime, s.st_ctime) for _, s in statuses), default=0.0)
    if not problem and time.time() - changed > SETTLED:
        if len(_intact) >= MOST_REMEMBERED:
            _intact.clear()
        _intact.add(seen)
    return problem


def _damage(path: str, expected: str | None) -> str:
    if expected is not None and expected != (present := checksum(path)):
        return f"is damaged: its CRC-32 is {present}, it was written with {expected}"
    with files.opened(path) as file:
        is_archive = file.read(len(ARCHIVE_HEAD)) == ARCHIVE_HEAD
        return (_flaw_of_archive(file) or "") if is_archive else ""


def flaw(path: str) -> str | None:
    """Describe how a file of ``torch.save`` that is in no list differs from its own CRC-32s.

    Returns:
        An empty string for an intact file; None for a file without CRC-32s.
    """
    with files.opened(path) as file:
        head = file.read(32)
        if not head:
            return "is an empty file"
        if head.startswith(ARCHIVE_HEAD):
            return _flaw_of_archive(file)
        return None if LEGACY_HEAD in head else f"is no checkpoint: it begins with {head!r}"


def _crc32_of_table(file: IO[bytes]) -> str | None:
    """Return the CRC-32 of a zip file's table; None if the file is no zip, or has no CRC-32s."""
    try:
        with ZipFile(file) as archive:
            records = archive.infolist()
    except Exception:  # zipfile raises errors of many types for a file of another kind
        return None
    if not _have_crc32(records):
        return None
    table = [(record.filename, record.file_size, record.CRC) for record in records]
    return f"{zlib.crc32(repr(table).encode(errors='replace')):08x}"


def crc32_of_bytes(file: IO[bytes]) -> str:
    """Return the CRC-32 of an open file, eight hexadecimal digits."""
    value = 0
    file.seek(0)
    while chunk := file.read(CHUNK):
        value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def _have_crc32(records: list[ZipInfo]) -> bool:
    """Return whether the records have CRC-32s; an option of torch leaves CRC-32s out."""
    return any(record.CRC for record in records)


def _flaw_of_archive(file: IO[bytes]) -> str | None:
    """Describe the damage of an open zip file: compare each record with its CRC-32.

    Returns:
        An empty string for an intact file; None for a file without CRC-32s.
    """
    try:
        with ZipFile(file) as archive:
            records = archive.infolist()
            if any(record.compress_type for record in records):
                return "has compressed records, as torch.save writes none"
            if not _have_crc32(records):
                return None
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises errors of many types for a damaged file
        return f"cannot be read: {error}"
    if damaged is None:
        return ""
    return f"is damaged: its record {damaged!r} has another CRC-32 than it was written with"
