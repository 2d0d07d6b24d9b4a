"""The first error of several ranks: the cause of the errors of all other ranks."""

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
"""The most seconds that rank 0 waits at its exit until the others have read of its error."""


def name_first_error(error: BaseException, world_size: int) -> None:
    """Add a note with the first error of all ranks to a later error. Not collective.

    An error on one rank ends its process, and each rank that waits in a collective then gets an
    error of its own, as "Connection closed by peer".

    Args:
        error: The error that ends the fit on this rank.
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
    """End the collectives of the other ranks, and keep the store for what they read then."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    end = time.monotonic() + READ_WITHIN
    while store.add(key, 0) < world_size and time.monotonic() < end:
        time.sleep(0.05)
