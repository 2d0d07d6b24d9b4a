"""Which of a run's checkpoints are deleted when a new one is on the disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.manifest import Entry

__all__ = ["delete_files", "keep_last", "superseded"]


def superseded(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Return the entries that make room for the last ``limit`` names, or for a newer file.

    A name that was written twice counts where it was written last; -1 is no limit.
    """
    kept: dict[str, Entry] = {}
    for entry in reversed(entries):
        if limit < 1 or len(kept) < limit:
            kept.setdefault(entry.name, entry)
    return [entry for entry in entries if kept.get(entry.name) is not entry]


def keep_last(
    directory: str, run: str, series: str, limit: int, resumed_at: int | None = None
) -> None:
    """Keep the last files of a run's series and delete the others.

    Args:
        directory: Where they and the manifest are.
        run: Whose they are.
        series: Which of the run's files.
        limit: How many to keep; -1 for all.
        resumed_at: The iterations of the file that a run goes on from: if there are newer ones
            nothing is deleted, since those may be damaged. None after a save.
    """

    def change(entries: list[Entry]) -> list[Entry]:
        own = [e for e in entries if (e.run, e.series) == (run, series)]
        there = own
        if limit > 0:  # what somebody has taken away, or a kill has left in the list, is no file
            there = [e for e in own if files.exists(files.join(directory, e.name))]
        if not there or resumed_at not in (None, there[-1].iter):
            return entries
        newest = there[-1]
        old = superseded(there, limit)
        # entries after the newest: a writer of the user's has not finished those
        old += [e for e in own[: own.index(newest)] if e not in there]
        # the file just written may have replaced another run's
        old += [e for e in entries if e.name == newest.name and e not in own]
        return manifest.without(directory, entries, old)

    manifest.update(directory, change)


def delete_files(directory: str, run: str, names: Collection[str], new: str) -> list[str]:
    """Delete files of a run by their names; return which it had.

    Args:
        directory: Where they and the manifest are.
        run: Whose they are; another run's stay.
        names: Their paths from the directory.
        new: The one just written: older entries of its name are forgotten.
    """
    gone: list[str] = []

    def change(entries: list[Entry]) -> list[Entry]:
        old = [e for e in entries if e.run == run and e.name in names]
        gone.extend(entry.name for entry in old)
        again = [e for e in entries if e.name == new]
        return manifest.without(directory, entries, [*old, *again[:-1]])

    manifest.update(directory, change)
    return gone
