"""Read and write a directory's manifest, the list of checkpoints ``checkpoints.json``.

The list has an entry for each checkpoint written to the directory. A file without an entry is never
deleted; a file that differs from its entry is never loaded.

A save writes the list before the rename, and again after a deletion. With the first write alone, a
killed run would leave entries of deleted and of overwritten files: a user's own file of such a name
would then be refused, and an old copy of an overwritten file taken for intact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from lightning_hooks.storage import files
from lightning_hooks.storage.entry import Entry, intact_of, parse
from lightning_hooks.utils.warn import warn

__all__ = [
    "LATEST",
    "NAME",
    "ChooseOld",
    "Manifest",
    "by_name",
    "is_run",
    "opened",
    "read",
]

NAME = "checkpoints.json"
LATEST = "latest.pth"
"""The symbolic link to the newest file."""


MOST_FILES = 100_000
"""The most entries of a list; each save reads and writes all."""

ChooseOld = Callable[[list[Entry]], list[Entry]]
"""Choose, of the existing files of a series, oldest first, those to delete."""


_WRITTEN: dict[str, tuple[bytes, list[Entry]]] = {}
"""What this process has last written, by the path of the list: parsing takes the longest."""


class Manifest:
    """The list of a directory; change a list inside :func:`opened` only.

    Args:
        path: The path of the list.
        contents: The contents of the file; None for a missing file.
    """

    def __init__(self, path: str, contents: bytes | None) -> None:
        self.path, self.directory = path, path.removesuffix(NAME)
        written, listed = _WRITTEN.get(path, (None, []))
        if contents != written:
            listed = [] if contents is None else self._parsed(contents)
        self._in_file = listed
        self.entries = [*listed]

    def _parsed(self, contents: bytes) -> list[Entry]:
        try:
            listed = [*json.loads(contents)["files"]]
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            warn(
                f"{self.path} is no list of checkpoints ({error!r}): files listed before "
                "are no longer found or deleted",
            )
            return []
        self._require_few(len(listed))
        entries = map(self._parsed_entry, listed)
        return [entry for entry in entries if entry is not None]

    def _require_few(self, count: int) -> None:
        if count > MOST_FILES:
            raise ValueError(
                f"{self.path} lists {count} checkpoints, and {MOST_FILES} is the most: keep fewer "
                "files with max_keep_ckpts, or give each run a directory"
            )

    def _parsed_entry(self, fields: object) -> Entry | None:
        try:
            return parse(fields)
        except (TypeError, ValueError) as error:
            warn(
                f"{self.path} lists what is no checkpoint of this directory ({error}): it is "
                "neither loaded nor deleted",
            )
            return None

    def insert(self, new: Entry, earlier: Collection[Entry] = ()) -> bool:
        """Insert an entry; return whether no newer file to resume from is listed.

        A slowly written file stays before files with more iterations of other hooks.

        Args:
            new: The entry.
            earlier: The entries listed before the run began or was resumed, perhaps with more
                iterations, which no new entry is moved before.

        Raises:
            ValueError: for more than ``MOST_FILES`` entries.
        """
        place = len(self.entries)
        self._require_few(place + 1)
        while place and _is_later(self.entries[place - 1], new, earlier):
            place -= 1
        self.entries.insert(place, new)
        return all(e.score is not None for e in self.entries[place + 1 :])

    def write(self) -> None:
        """Write the list to the file, if the entries have changed."""
        if self.entries != self._in_file:
            listing = ",\n".join([entry.line for entry in self.entries])
            contents = f'{{"version": 1, "files": [\n{listing}\n]}}\n'.encode()
            files.write_bytes(self.path, contents)
            self._in_file = [*self.entries]
            _WRITTEN[self.path] = contents, self._in_file

    def prune(
        self, run: str, series: str, choose_old: ChooseOld | None, resumed_at: int | None = None
    ) -> list[str]:
        """Delete old files of a series, and outdated entries.

        Args:
            run: The run.
            series: The series of the run.
            choose_old: Chooses the files to delete; None keeps all, and looks for no file.
            resumed_at: The iterations done in the file to resume from. Nothing is deleted if the
                list has newer files, which may be damaged.

        Returns:
            The names of the chosen files.
        """
        own = [entry for entry in self.entries if (entry.run, entry.series) == (run, series)]
        existing = own
        if choose_old is not None:
            existing = [entry for entry in own if not entry.flaw(self.directory, in_full=False)]
        if not existing or resumed_at not in (None, existing[-1].iter):
            return []
        newest = existing[-1]
        if resumed_at is not None and newest.flaw(self.directory):
            return []
        old: list[Entry] = []
        missing: list[Entry] = []
        if choose_old is not None:
            old, present = choose_old(existing), {*existing}
            # entries after the newest belong to files that the user's writer has not finished
            missing = [e for e in own[: own.index(newest)] if e not in present]
        # the newest may have replaced an older file, perhaps of another run
        same = [e for e in self.entries if e.name == newest.name and e is not newest]
        wanted = {e for e in same if e.run == run and e.series != series}  # for another hook
        self._delete([*old, *missing, *(e for e in same if e not in wanted)])
        changed = any((e.size, e.crc32) != (newest.size, newest.crc32) for e in wanted)
        if changed and resumed_at is None:  # the name has a new file
            self._update(dict.fromkeys(wanted, newest))
        return [entry.name for entry in old]

    def match_entries_to_files(self, run: str) -> None:
        """Make the entries of each name describe the present file of the name.

        A kill between listing and renaming leaves the entry of a file never renamed,
        beside the entry of the older file of the name.
        """
        own: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.run == run:
                own.setdefault(entry.name, []).append(entry)
        doubtful = [same for same in own.values() if len({entry.crc32 for entry in same}) > 1]
        checked = [(same, intact_of(self.directory, same)) for same in doubtful]
        self._update({e: intact for same, intact in checked if intact is not None for e in same})

    def _update(self, files_of: Mapping[Entry, Entry]) -> None:
        """Make entries, each in its own series, describe the files of other entries."""
        if files_of:
            changed = [
                dataclasses.replace(files_of.get(entry, entry), series=entry.series)
                for entry in self.entries
            ]
            self.entries = [*dict.fromkeys(changed)]

    def _delete(self, old: Sequence[Entry]) -> None:
        """Delete entries and the files of the entries.

        A file stays if another entry has the same name, or, with a warning, if the file differs
        from its entry.
        """
        if not old:
            return
        going = {id(entry) for entry in old}  # by identity: a file written twice has equal entries
        self.entries = [entry for entry in self.entries if id(entry) not in going]
        names = {entry.name for entry in self.entries}
        for entry in old:
            problem = "" if entry.name in names else entry.remove(self.directory)
            if problem:
                warn(
                    f"{self.directory}{entry.name} {problem}, so it is not deleted; the list "
                    "forgets the file, which is yours to keep or to delete",
                )


@contextlib.contextmanager
def opened(directory: str) -> Iterator[Manifest]:
    """Yield the list of a directory, written after the block; other writers wait until then."""
    path = files.join(directory, NAME)
    with files.exclusive(path) as contents:
        listed = Manifest(path, contents)
        yield listed
        listed.write()


def _is_later(listed: Entry, new: Entry, earlier: Collection[Entry]) -> bool:
    if listed.run != new.run or listed.series == new.series or listed.name == new.name:
        return False  # a series, or a name, is written in order
    return listed.iter > new.iter and listed not in earlier


def read(directory: str) -> list[Entry]:
    """Return the entries, oldest first; none for a missing list, or, with a warning, a damaged.

    Raises:
        NotADirectoryError: for a file in the place of the directory or a parent.
        ValueError: for more than ``MOST_FILES`` entries.
    """
    path = files.join(os.fspath(directory), NAME)
    try:
        return Manifest(path, files.read_bytes(path)).entries
    except NotADirectoryError:
        files.require_writable(os.fspath(directory))  # names the file that is no folder
        raise


def by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the last entry of each name, oldest first."""
    last: dict[str, Entry] = {}
    for entry in entries:
        last.pop(entry.name, None)
        last[entry.name] = entry
    return last


def is_run(name: object) -> bool:
    """Return whether a value has the form of a run's name, a part of its temporary files."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{12}", name) is not None
