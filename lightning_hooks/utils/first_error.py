"""Note the first error of all ranks on the errors of the other ranks."""

from __future__ import annotations

import atexit
import itertools
import time
from typing import Any

from torch import distributed

from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.secrets import describe

__all__ = ["name_first_error"]

_errors = itertools.count()

READ_WITHIN = 3.0
"""The most seconds for which rank 0 waits for the other ranks to read, before its process ends."""


def name_first_error(error: BaseException, world_size: int) -> None:
    """Add a note with the first error of all ranks to a rank's error. Not collective.

    When a rank fails, its process ends. The other ranks wait in a collective, and raise errors such
    as "Connection closed by peer", without the cause.

    Args:
        error: The rank's error, at the end of the fit.
        world_size: The number of ranks, of a Trainer; with 1 nothing is added.
    """
    if world_size == 1 or not distributed.is_initialized():
        return
    store, rank = distributed.distributed_c10d._get_default_store(), distributed.get_rank()
    key = f"lightning_hooks/error {next(_errors)}"
    own = ", ".join([f"rank {rank}: {describe(error)}", *getattr(error, "__notes__", ())])
    try:
        first = store.compare_set(key, "", own).decode()
        store.add(f"{key} read", 1)
    except Exception:  # the store ends with rank 0
        first = "rank 0, whose process has ended"
    if not first.startswith(f"rank {rank}: "):
        add_note(error, f"the first error was on {first}")
    if rank == 0:
        atexit.register(_wait_for_readers, store, f"{key} read", world_size)


def _wait_for_readers(store: Any, key: str, world_size: int) -> None:
    """End the collectives of the other ranks, and keep rank 0's store until all ranks have read."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    end = time.monotonic() + READ_WITHIN
    while store.add(key, 0) < world_size and time.monotonic() < end:
        time.sleep(0.05)
