"""Find and verify the checkpoints of a directory by the list beside them.

The list, ``checkpoints.json``, has an entry for each file that was written here. A file without
an entry is never deleted; one that differs from its entry is never loaded.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime

from lightning_hooks.storage import files
from lightning_hooks.storage.entry import Entry, flaw, parse, remove

__all__ = [
    "LATEST",
    "NAME",
    "ChooseOld",
    "Entry",
    "Manifest",
    "add",
    "begin",
    "flaw",
    "is_run",
    "read",
]

NAME = "checkpoints.json"
LATEST = "latest.pth"
"""The symbolic link to the newest file."""


ChooseOld = Callable[[list[Entry]], list[Entry]]
"""Choose, of the existing files of a series, oldest first, those to delete."""


class Manifest:
    """The list of a directory, to be changed inside :func:`files.exclusive` only.

    Args:
        path: The path of the list.
        contents: What is in the file; None if it does not exist.
    """

    def __init__(self, path: str, contents: bytes | None) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.begun: list[str] = []
        """Runs that have no entry yet."""
        if contents is not None:
            self._parse(contents)

    def _parse(self, contents: bytes) -> None:
        try:
            table = json.loads(contents)
            listed = [*table["files"]]
            self.begun = [run for run in table.get("begun", ()) if is_run(run)]
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            warnings.warn(
                f"{self.path} is no list of checkpoints ({error!r}): the files that "
                "it listed are no longer found or deleted",
                stacklevel=4,
            )
            return
        for fields in listed:
            self._parse_entry(fields)

    def _parse_entry(self, fields: object) -> None:
        try:
            self.entries.append(parse(fields))
        except (TypeError, ValueError) as error:
            warnings.warn(
                f"{self.path} lists what is no checkpoint of this directory ({error}): it is "
                "neither loaded nor deleted",
                stacklevel=5,
            )

    def runs(self) -> set[str]:
        """Return the names of the runs that have written here, or have begun to."""
        return {*self.begun, *filter(is_run, (entry.run for entry in self.entries))}

    def insert(self, new: Entry) -> bool:
        """List a file; return whether no file that a run goes on from is newer.

        Files that other hooks of the run took after it stay behind it: it was written slowly.
        """
        place = len(self.entries)
        while place and _is_later(self.entries[place - 1], new):
            place -= 1
        self.entries.insert(place, new)
        return all(e.score is not None for e in self.entries[place + 1 :])

    def write(self) -> None:
        """Replace the file."""
        runs = [entry.run for entry in self.entries]
        table = {
            "version": 1,
            "files": [dataclasses.asdict(entry) for entry in self.entries],
            "begun": [run for run in self.begun if run not in runs],
        }
        files.write_bytes(self.path, json.dumps(table, indent=1).encode())

    def prune(
        self, run: str, series: str, choose_old: ChooseOld | None, resumed_at: int | None = None
    ) -> list[str]:
        """Delete old files of a series, and entries that are out of date.

        Args:
            run: The run.
            series: The series in it.
            choose_old: Chooses the files to delete; None keeps all, and does not look for them.
            resumed_at: The iterations done in the file that a run is resumed from; nothing is
                deleted if that is not the newest: newer ones may be damaged.

        Returns:
            The names that were chosen.
        """
        directory = self.path.removesuffix(NAME)
        own = [entry for entry in self.entries if (entry.run, entry.series) == (run, series)]
        existing = own
        if choose_old is not None:
            existing = [entry for entry in own if not flaw(directory, entry, in_full=False)]
        if not existing or resumed_at not in (None, existing[-1].iter):
            return []
        newest = existing[-1]
        if resumed_at is not None and flaw(directory, newest):
            return []
        old = [] if choose_old is None else choose_old(existing)
        # entries after the newest are of files that a writer of the user's has not finished
        missing = [e for e in own[: own.index(newest)] if e not in existing]
        # the newest may have replaced an older file, also of another run
        same = [e for e in self.entries if e.name == newest.name and e is not newest]
        wanted = [e for e in same if e.run == run and e.series != series]  # by another hook
        self._delete([*old, *missing, *(e for e in same if e not in wanted)])
        changed = any((e.size, e.crc32) != (newest.size, newest.crc32) for e in wanted)
        if changed and resumed_at is None:  # it is another file now
            self.entries = [
                dataclasses.replace(newest, series=e.series) if e in wanted else e
                for e in self.entries
            ]
            self.write()
        return [entry.name for entry in old]

    def settle(self, run: str) -> None:
        """Have the entries of each name describe the file that has it.

        A kill between the two steps of :func:`add` leaves an entry of a file that did not get its
        name, while an older one still has it.
        """
        own = [entry for entry in self.entries if entry.run == run]
        doubtful = [e for e in own if any(e.name == o.name and e.crc32 != o.crc32 for o in own)]
        directory = self.path.removesuffix(NAME)
        there = {e.name: e for e in doubtful if not flaw(directory, e)}
        if there:
            listed, self.entries = self.entries, []
            for entry in listed:
                if entry in own and entry.name in there:
                    entry = dataclasses.replace(there[entry.name], series=entry.series)
                if entry not in self.entries:
                    self.entries.append(entry)
            self.write()

    def _delete(self, old: Sequence[Entry]) -> None:
        """Delete entries and their files.

        A file stays if another entry has its name, or, with a warning, if it is another one than
        that of the entry.
        """
        if not old:
            return
        going = {id(entry) for entry in old}  # two may be equal: a file that was written twice
        self.entries = [entry for entry in self.entries if id(entry) not in going]
        names = {entry.name for entry in self.entries}
        directory = self.path.removesuffix(NAME)
        for entry in old:
            problem = "" if entry.name in names else remove(directory, entry)
            if problem:
                path = files.join(directory, entry.name)
                warnings.warn(
                    f"{path} {problem}, so it is not deleted; it is no longer in the list, and "
                    "yours to keep or to delete",
                    stacklevel=4,
                )
        self.write()


def begin(directory: str, run: str) -> None:
    """List a run that is about to write a file, so that the next run finds what a kill leaves."""
    path = files.join(directory, NAME)
    with files.exclusive(path) as contents:
        manifest = Manifest(path, contents)
        if run not in manifest.runs():
            manifest.begun.append(run)
            manifest.write()


def add(
    directory: str,
    new: Entry,
    rename: Callable[[], object],
    choose_old: ChooseOld | None,
    link: Callable[[], object] | None = None,
) -> list[str]:
    """List a file, publish it, and delete those that it supersedes; return the names of these.

    Args:
        directory: The directory of the file.
        new: The entry.
        rename: Gives the file its name.
        choose_old: Chooses the files to delete; None keeps all.
        link: Points the link to the newest file at it; not called if a newer one is listed.
    """
    path = files.join(directory, NAME)
    with files.exclusive(path) as contents:
        manifest = Manifest(path, contents)
        # an older entry of the name stays: until the file is renamed it is the one that is there
        is_newest = manifest.insert(new)
        manifest.write()
        rename()
        if link is not None and is_newest:
            link()
        return manifest.prune(new.run, new.series, choose_old)


def _is_later(listed: Entry, new: Entry) -> bool:
    if listed.run != new.run or new.series == listed.series or new.name == listed.name:
        return False  # these are written in order, whatever the clock
    try:
        return datetime.fromisoformat(listed.time) > datetime.fromisoformat(new.time)
    except (TypeError, ValueError):  # a list that was edited
        return False


def read(directory: str) -> list[Entry]:
    """Return the entries, oldest first; none for a list that is missing, or damaged: a warning."""
    path = files.join(os.fspath(directory), NAME)
    return Manifest(path, files.read_bytes(path)).entries


def is_run(name: object) -> bool:
    """Return whether this may be a run's name, by which its files are found and deleted."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{12}", name) is not None
