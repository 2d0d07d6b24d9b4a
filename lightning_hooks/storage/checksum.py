"""Compute the CRC-32 of files, and of bytes while they are written.

It detects damage, not forgery: it takes half of SHA-256's time, and a checkpoint's is combined
from those that ``torch.save`` has computed.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Sequence
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

from lightning_hooks.storage import files

__all__ = [
    "ChecksumWriter",
    "archive_checksum",
    "checksum",
    "checksum_of",
    "flaw_of_archive",
    "has_checksum",
    "joined",
]

CHUNK = 1 << 20


def checksum(path: str) -> str:
    """Return the CRC-32 of a local or remote file as eight hexadecimal digits."""
    fs, target = files.filesystem(path)
    with fs.open(target, "rb") as file:
        return checksum_of(file)


def checksum_of(file: IO[bytes]) -> str:
    """Return the checksum of the rest of an open file."""
    value = 0
    while chunk := file.read(CHUNK):
        value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def has_checksum(file: IO[bytes], expected: str) -> bool:
    """Return whether an open file has a checksum, by its own records or by all its bytes."""
    with contextlib.suppress(Exception):  # any file may be here, made to confuse a reader too
        if archive_checksum(file) == expected:
            return True
    file.seek(0)
    return checksum_of(file) == expected


def flaw_of_archive(file: IO[bytes]) -> str | None:
    """Describe how the records of an open zip file differ from their own checksums.

    Returns:
        An empty string if they do not; None if there are none, which ``torch`` can be told to.
    """
    try:
        with ZipFile(file) as archive:
            records = archive.infolist()
            if any(record.compress_type for record in records):
                return "has compressed records, as torch.save writes none"
            damaged = archive.testzip() if any(record.CRC for record in records) else None
    except Exception as error:  # a damaged archive raises whatever it leads to
        return f"cannot be read: {error}"
    if damaged is not None:
        return f"is damaged: its record {damaged!r} has another CRC-32 than it was written with"
    return "" if any(record.CRC for record in records) else None


def archive_checksum(file: IO[bytes]) -> str:
    """Return the :func:`checksum` of an open zip file whose records are not compressed.

    The CRC-32 of each record is in the file, computed from the bytes in memory; only the bytes
    between the records are read.
    """
    values, lengths, end = [], [], 0
    size = file.seek(0, os.SEEK_END)
    with ZipFile(file) as archive:
        for record in sorted(archive.infolist(), key=lambda record: record.header_offset):
            file.seek(end)
            between = file.read(record.header_offset + 30 - end)
            between += file.read(sum(struct.unpack("<HH", between[-4:])))  # name, padding
            values += [zlib.crc32(between), record.CRC]
            lengths += [len(between), record.file_size]
            end += len(between) + record.file_size
            if end > size:
                raise ValueError(f"the record {record.filename!r} ends behind the file")
        file.seek(end)
        rest = file.read()
    return f"{joined([*values, zlib.crc32(rest)], [*lengths, len(rest)]):08x}"


def joined(values: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the CRC-32 of parts in a row, from the CRC-32 and the length of each.

    A part adds its own CRC after as many zero bits as there are behind it. A zero bit is a linear
    map: a matrix over the numbers 0 and 1, whose square is two bits.

    >>> joined([zlib.crc32(b"one"), zlib.crc32(b"two")], [3, 3]) == zlib.crc32(b"onetwo")
    True
    """
    parts = np.array(values, np.uint32)
    after = 8 * (np.sum(lengths, dtype=np.int64) - np.cumsum(lengths, dtype=np.int64))
    matrix = np.array([0xEDB88320, *(1 << bit for bit in range(31))], np.uint32)
    while after.any():
        parts = np.where(after & 1, _times(matrix, parts), parts)
        matrix = _times(matrix, matrix)
        after >>= 1
    return int(np.bitwise_xor.reduce(parts))


def _times(matrix: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bits = vectors[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    product: np.ndarray[Any, Any] = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return product


class ChecksumWriter:
    """Write bytes to a file, and count them and their CRC-32."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._value = 0
        self.size = 0

    @property
    def crc32(self) -> str:
        """The CRC-32 so far."""
        return f"{self._value:08x}"

    def write(self, data: Any) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        self._value = zlib.crc32(view, self._value)
        self.size += len(view)
        self._file.write(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: no bytes are held back."""
