"""CRC-32 of files, and of what goes into one.

Half of SHA-256's time (0.10 s to 0.22 s for 293 MiB): with that, a save would cost more than its
write. It is for damage, not against forgery.
"""

from __future__ import annotations

import zlib
from typing import IO, Any

from lightning_hooks import files

__all__ = ["ChecksumWriter", "checksum"]

CHUNK = 1 << 20


def checksum(path: str) -> str:
    """Return the CRC-32 of a local or remote file as eight hexadecimal digits."""
    fs, target = files.filesystem(path)
    value = 0
    with fs.open(target, "rb") as file:
        while chunk := file.read(CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


class ChecksumWriter:
    """Passes bytes on to a file, and knows how many there were and their CRC-32."""

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
        """Nothing waits here."""
