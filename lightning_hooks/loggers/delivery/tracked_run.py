"""``TrackedRun``: a run in a backend, new or continued from a checkpoint."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from lightning_hooks.engine.driver.resume import KEY, entry_of
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import (
    discard_delivered,
    exclusive,
    is_run_id,
    read_head,
    read_spool,
)

__all__ = ["RESUME", "TrackedRun", "runs_in", "take_over"]

RESUME = "allow", "never"
"""Whether a run resumed from a checkpoint continues the backend's run or begins a new run."""


@dataclass(frozen=True)
class TrackedRun:
    """A run in a backend, as described by a checkpoint.

    Args:
        key: A name chosen by the hook, known before the backend gives an id.
        run_id: The backend's id, None where the backend has given none.
        after: The last step of the checkpoint of a continued run; None for a new run.
        apart: Whether the run needs a folder apart from an earlier run's folder.
    """

    key: str = field(default_factory=lambda: uuid4().hex[:12])
    run_id: str | None = None
    after: int | None = None
    apart: bool = False

    @classmethod
    def restored(
        cls, entry: Mapping[str, Any] | None, resume: str, after: int | None
    ) -> TrackedRun:
        """Return the run of a checkpoint's entry; without an entry, or on request, a new run.

        A checkpoint may be a stranger's: only ids are read, no folder and no server.

        >>> TrackedRun.restored({"key": "1f", "run_id": "a"}, "allow", 8)
        TrackedRun(key='1f', run_id='a', after=8, apart=False)
        >>> TrackedRun.restored({"key": "1f"}, "never", 8).apart
        True
        """
        if not entry or not is_run_id(entry.get("key")):
            return cls()
        if resume == "never":
            return cls(apart=True)
        run_id = entry.get("run_id")
        found = run_id if is_run_id(run_id) else None
        return cls(entry["key"], found, after, entry.get("apart") is True)

    def entry(self, run_id: str | None) -> dict[str, Any]:
        """Return the entry of a checkpoint.

        Args:
            run_id: The backend's id, None until the client has started.
        """
        return {"key": self.key, "run_id": run_id or self.run_id, "apart": self.apart}


def runs_in(checkpoint: dict[str, Any], backend: str) -> list[dict[str, Any]]:
    """Return the list of a checkpoint's entries for a backend's trackers; callers append entries.

    >>> runs_in({"lightning_hooks": {"trackers": {"mlflow": [{"key": "1f"}]}}}, "mlflow")
    [{'key': '1f'}]
    """
    entry = checkpoint.setdefault(KEY, {})
    entry_of(checkpoint)
    runs = entry.setdefault("trackers", {}).setdefault(backend, [])
    if not (isinstance(runs, list) and all(isinstance(run, dict) for run in runs)):
        raise ValueError(
            f"the checkpoint's {KEY!r} is damaged: 'trackers' has no runs: {runs!r:.80}"
        )
    return runs


@dataclass(frozen=True)
class UnsentSpool:
    """Unsent records of a killed process, and the spool with the records."""

    path: str
    head: Mapping[str, Any]
    records: Sequence[Record]
    later: Sequence[Record] = ()
    """Records after the checkpoint, which are left out."""

    def settle(self) -> None:
        """Remove the spool after its records were copied; a spool with damaged lines stays."""
        for record in self.later:
            for upload in record.uploads:
                upload.discard()
        with contextlib.suppress(OSError):
            discard_delivered(self.path, self.head)


def take_over(folder: str, backend: str, run: TrackedRun) -> dict[str, UnsentSpool]:
    """Return a killed process's unsent records of a run, by the path of the spool.

    Records after the checkpoint are left out: the resumed process logs the same steps again. The
    validation at the end of the checkpoint's epoch has the number of the next iteration, and so
    have values of the whole epoch, recognized by the missing learning rate.

    Args:
        folder: The folder of the spools.
        backend: The name of the backend.
        run: The run; a new run has no unsent records.
    """
    found: dict[str, UnsentSpool] = {}
    if run.after is None:
        return found
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.jsonl"))):
        with contextlib.suppress(OSError, ValueError), exclusive(path):  # the process has ended
            head, _ = read_head(path)
            if (head.get("writer"), head.get("key")) == (backend, run.key):
                head, records, _ = read_spool(path, rest=True)
                own = [record for record in records if _belongs(record, run.after)]
                later = [record for record in records if not _belongs(record, run.after)]
                found[path] = UnsentSpool(path, head, own, later)
    return found


def _belongs(record: Record, done: int) -> bool:
    is_validation = any(name.startswith("val/") for name in record.scalars)
    is_epoch = not any(name.startswith("learning_rate") for name in record.scalars)
    return record.step <= done + (is_validation or is_epoch)
