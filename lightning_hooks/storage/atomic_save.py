"""Write checkpoints, and compute size and checksum before the final rename."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import torch

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import ChecksumWriter, archive_checksum, checksum

__all__ = ["remove_temporaries", "write_synced", "write_to"]

SYNC_INTERVAL = 0.05
"""Seconds from one sync of a growing file to the next: some dozen MiB."""


def write_synced(obj: Any, path: str) -> tuple[int, str]:
    """Write a local file with ``torch.save``, sync it, and return its size and CRC-32."""
    open(path, "wb").close()  # for the other thread to find
    written = threading.Event()
    with ThreadPoolExecutor(1) as pool:  # the disk and the processor work side by side
        syncing = pool.submit(_sync_while_written, path, written)
        try:
            torch.save(obj, path)  # by name: it need not go through Python's buffers
        finally:
            written.set()
        # torch stores a CRC-32 with each record unless that is switched off
        has_crc32 = torch.serialization.get_crc32_options()
        crc32 = archive_checksum(path) if has_crc32 else checksum(path)
        syncing.result()
    return os.path.getsize(path), crc32


def write_to(obj: Any, file: IO[bytes]) -> tuple[int, str]:
    """Write to an open file with ``torch.save``, close it, and return its size and CRC-32."""
    checked = ChecksumWriter(file)
    torch.save(obj, checked)  # type: ignore[arg-type]  # it needs write() and flush() only
    file.close()
    return checked.size, checked.crc32


def _sync_while_written(path: str, written: threading.Event) -> None:
    """Sync a file again and again while it is written, and once when it is complete."""
    while not written.wait(SYNC_INTERVAL):
        files.sync(path)
    files.sync(path)


def remove_temporaries(directory: str, tags: Collection[str], own: str) -> None:
    """Delete the temporary files that killed processes have left in a local directory.

    A file that a process is writing stays.

    Args:
        directory: The directory; its subdirectories are searched too.
        tags: The tags of the files, see :func:`files.locked_path`.
        own: The tag that no other process uses; its files go even where there are no locks.
    """
    if not (files.is_local(directory) and os.path.isdir(directory)):
        return
    for folder, _, names in os.walk(directory.removeprefix("file://")):
        for name in names:
            tag = name.removesuffix(".tmp").rpartition(".")[2]
            if name.endswith(".tmp") and tag in tags:
                path = os.path.join(folder, name)
                # not there any more, or not ours to open: no reason to end a run
                with contextlib.suppress(OSError), files.locked(path, wait=False) as is_locked:
                    if is_locked or (is_locked is None and tag == own):
                        os.unlink(path)
