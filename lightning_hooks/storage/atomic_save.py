"""``torch.save`` whose size and checksum are known before the file has its name."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import ChecksumWriter, archive_checksum, checksum
from lightning_hooks.storage.files import locked

__all__ = ["remove_temporaries", "save_announced"]

PAUSE = 0.05
"""Seconds from one sync of a growing file to the next: some dozen MiB."""


def save_announced(obj: Any, path: str, tag: str, announce: Callable[[int, str], None]) -> None:
    """Write a whole file or none.

    Args:
        obj: What ``torch.save`` takes.
        path: Where to, local or fsspec's.
        tag: What a local file is called meanwhile, ``<path>.<tag>.tmp``.
        announce: Is given the size and the CRC-32 when the bytes are on the disk and before the
            file is there under its name: what it notes is true from the rename on.
    """
    if files.is_local(path):
        # locked until it has its name: what nobody holds is left of a process that was killed
        with contextlib.ExitStack() as lock, files.atomic_path(path, tag) as temporary:
            lock.enter_context(locked(temporary, os.O_RDWR | os.O_CREAT))
            crc32 = _save_synced(obj, temporary)
            announce(os.path.getsize(temporary), crc32)
        return
    with files.atomic_write(path) as file:
        checked = ChecksumWriter(file)
        torch.save(obj, checked)  # type: ignore[arg-type]  # it needs write() and flush() only
        file.close()  # all is sent, and appears with the end of the block
        announce(checked.size, checked.crc32)


def _save_synced(obj: Any, path: str) -> str:
    """Write a local file, wait until it is on the disk, and return its CRC-32."""
    open(path, "wb").close()  # for the other thread to find
    written = threading.Event()
    with ThreadPoolExecutor(1) as pool:  # the disk and the processor work side by side
        syncing = pool.submit(_keep_synced, path, written)
        try:
            torch.save(obj, path)  # by name: it need not go through Python's buffers
        finally:
            written.set()
        # torch writes the records' own, unless it is told not to
        has_crc32 = torch.serialization.get_crc32_options()
        crc32 = archive_checksum(path) if has_crc32 else checksum(path)
        syncing.result()
    return crc32


def _keep_synced(path: str, written: threading.Event) -> None:
    """Have the disk take what there is of a file while it is written, and all of it then."""
    while not written.wait(PAUSE):
        files.sync(path)
    files.sync(path)


def remove_temporaries(directory: str, tags: Collection[str], own: str) -> None:
    """Delete what killed processes have left of :func:`save_announced` in a local directory.

    Args:
        directory: It and those in it.
        tags: Whose; a file that a process is writing stays.
        own: The one of these that is nobody else's, also where there are no locks to tell.
    """
    if not (files.is_local(directory) and os.path.isdir(directory)):
        return
    for folder, _, names in os.walk(directory.removeprefix("file://")):
        for name in names:
            tag = name.removesuffix(".tmp").rpartition(".")[2]
            if name.endswith(".tmp") and tag in tags:
                path = os.path.join(folder, name)
                # not there any more, or not ours to open: no reason to end a run
                with contextlib.suppress(OSError), locked(path, wait=False) as held:
                    if held or (held is None and tag == own):
                        os.unlink(path)
