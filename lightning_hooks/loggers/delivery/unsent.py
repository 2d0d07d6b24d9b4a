"""Spools that earlier runs have left: what they say is still to be sent."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import tempfile
from collections.abc import Sequence

from lightning_hooks.loggers.delivery.spool import held, read_spool

__all__ = ["command", "leftovers", "shared_folder"]


def shared_folder() -> str:
    """Return where spools are without a work dir on this machine: those of all programs."""
    return os.path.join(tempfile.gettempdir(), "lightning_hooks")


def command(paths: Sequence[str]) -> str:
    """Return what sends spools, for a shell.

    >>> command(["work/spool/now-wandb.jsonl", "my work/spool/now-wandb.jsonl"])
    "lightning-hooks replay work/spool/now-wandb.jsonl 'my work/spool/now-wandb.jsonl'"
    """
    return shlex.join(["lightning-hooks", "replay", *paths])


def leftovers(folder: str, writer: str) -> dict[str, int]:
    """Return how many records are to be sent, by spool, for the spools of runs that have ended.

    Args:
        folder: Where the spools are; of the shared one nothing is said, for they may be anybody's.
        writer: The backend; spools for others are left out.
    """
    found: dict[str, int] = {}
    if os.path.abspath(folder) == shared_folder():
        return found
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.jsonl"))):
        with contextlib.suppress(OSError, ValueError), held(path):  # not of a run that goes on
            head, records, _ = read_spool(path, rest=True)
            if records and head.get("writer") == writer:
                found[path] = len(records)
    return found
