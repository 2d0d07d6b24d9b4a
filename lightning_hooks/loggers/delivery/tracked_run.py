"""``TrackedRun``: a run in a backend, new or continued from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import is_run_id, spools_in

__all__ = ["RESUME", "TrackedRun", "runs_in"]

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
        known_id = run_id if is_run_id(run_id) else None
        return cls(entry["key"], known_id, after, entry.get("apart") is True)

    def has_written(self, head: Mapping[str, Any]) -> bool:
        """Whether a spool, by its description, is of an earlier process of this run."""
        return self.after is not None and head.get("key") == self.key

    def has_left(self, folder: str, backend: str) -> bool:
        """Whether a killed process of this run has left a spool in a folder."""
        spools = spools_in(folder, backend)
        return any(has_ended and self.has_written(head) for _, head, has_ended in spools)

    def includes(self, record: Record) -> bool:
        """Whether the checkpoint includes a record; later steps are logged again.

        The validation at the end of the checkpoint's epoch has the number of the next iteration,
        and so have values of the whole epoch, recognized by the missing learning rate.
        """
        is_validation = any(name.startswith("val/") for name in record.scalars)
        is_epoch = not any(name.startswith("learning_rate") for name in record.scalars)
        return record.step <= (self.after or 0) + (is_validation or is_epoch)

    def entry(self, run_id: str | None) -> dict[str, Any]:
        """Return the entry of a checkpoint.

        Args:
            run_id: The backend's id, None until the client has started.
        """
        return {"key": self.key, "run_id": run_id or self.run_id, "apart": self.apart}


def runs_in(own_part: dict[str, Any], backend: str) -> list[dict[str, Any]]:
    """Return the runs of a backend's trackers in a checkpoint; callers append runs.

    >>> runs_in({"trackers": {"mlflow": [{"key": "1f"}]}}, "mlflow")
    [{'key': '1f'}]
    """
    runs: list[dict[str, Any]] = own_part.setdefault("trackers", {}).setdefault(backend, [])
    return runs
