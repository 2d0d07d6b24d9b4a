"""Write checkpoints whose size and checksum are known before they appear."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import ChecksumWriter, archive_checksum, checksum

__all__ = ["remove_temporaries", "staged"]

SYNC_INTERVAL = 0.05
"""Seconds from one sync of a growing file to the next: some dozen MiB."""


@contextlib.contextmanager
def staged(obj: Any, path: str, tag: str) -> Iterator[tuple[int, str]]:
    """Write an object with ``torch.save``, yield size and CRC-32, and let the file appear after.

    The bytes are on the disk when the block begins; if it raises, no file appears.

    Args:
        obj: The object to write.
        path: The local or remote path of the file.
        tag: A part of a local file's temporary path, ``<path>.<tag>.tmp``.
    """
    if files.is_local(path):
        # a temporary file that no process has locked was left by a process that was killed
        with contextlib.ExitStack() as lock, files.atomic_path(path, tag) as temporary:
            lock.enter_context(files.locked(temporary, os.O_RDWR | os.O_CREAT))
            crc32 = _save_synced(obj, temporary)
            yield os.path.getsize(temporary), crc32
        return
    with files.atomic_write(path) as file:
        checked = ChecksumWriter(file)
        torch.save(obj, checked)  # type: ignore[arg-type]  # it needs write() and flush() only
        file.close()  # all is sent, and appears with the end of the block
        yield checked.size, checked.crc32


def _save_synced(obj: Any, path: str) -> str:
    """Write a local file, wait until it is on the disk, and return its CRC-32."""
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
    return crc32


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
        tags: The tags of the files, see :func:`staged`.
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
