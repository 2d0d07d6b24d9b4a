"""The list of the checkpoints in a directory: what was written, by whom, with its checksum.

It is one JSON file beside the checkpoints. A file that is not in it is not ours, and is never
deleted; one that differs from what it says is never loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import checksum
from lightning_hooks.storage.files import locked

__all__ = [
    "LATEST",
    "NAME",
    "Entry",
    "begin",
    "flaw",
    "is_run",
    "newest_valid",
    "read",
    "remove_temporaries",
    "runs",
    "update",
    "without",
]

NAME = "checkpoints.json"
LATEST = "latest.pth"
"""The link beside it."""

_ONE_AT_A_TIME = threading.Lock()  # the threads of a process; processes lock the directory


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file.

    Args:
        name: Its path from the directory.
        size: Its bytes; None for what another writer than ours has made.
        crc32: The checksum of all its bytes, eight hexadecimal digits; None as above.
        epoch: Epochs done.
        iter: Iterations done.
        time: When it was written, ISO 8601.
        run: Which run has written it; a run that is resumed keeps its name.
        series: Which of the run's hooks has, for which key: old files of a series make room.
        resumable: Whether a run can go on from it, or it is for loading weights.
    """

    name: str
    size: int | None
    crc32: str | None
    epoch: int
    iter: int
    time: str
    run: str
    series: str
    resumable: bool = True


def read(directory: str) -> list[Entry]:
    """Return the entries, oldest first; none where there is no manifest.

    One that cannot be understood costs a warning: its files are then nobody's.
    """
    return _read(directory)[0]


def _read(directory: str) -> tuple[list[Entry], list[str]]:
    """Return the entries, and the runs that have none yet."""
    fs, target = files.filesystem(files.join(directory, NAME))
    try:
        with fs.open(target, "rb") as file:
            table = json.load(file)
        entries = [Entry(**entry) for entry in table["files"]]
        # what is named here is deleted one day, and the file may have come with a stranger's run
        inside = [entry for entry in entries if files.is_inside(entry.name)]
        return inside, [run for run in table.get("begun", ()) if is_run(run)]
    except FileNotFoundError:
        return [], []
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        warnings.warn(
            f"{files.join(directory, NAME)} is no list of checkpoints ({error!r}): the files that "
            "it named are neither found by it nor deleted any more",
            stacklevel=3,
        )
        return [], []


def _write(directory: str, entries: list[Entry], begun: list[str]) -> None:
    table = {
        "version": 1,
        "files": [dataclasses.asdict(entry) for entry in entries],
        "begun": [run for run in begun if all(entry.run != run for entry in entries)],
    }
    with files.atomic_write(files.join(directory, NAME)) as file:
        file.write(json.dumps(table, indent=1).encode())


def update(directory: str, change: Callable[[list[Entry]], list[Entry]]) -> None:
    """Replace the entries by what ``change`` makes of them; others wait meanwhile.

    Processes exclude each other in a local directory only: a remote one is for one run at a time.
    """
    with _alone(directory):
        before, begun = _read(directory)
        after = change(before)
        if after != before:
            _write(directory, after, begun)


def begin(directory: str, run: str) -> None:
    """Note a run before its first file: what is left if it is killed in that is known by it."""
    if run not in runs(directory):
        with _alone(directory):
            entries, begun = _read(directory)
            _write(directory, entries, [*begun, run])


def runs(directory: str) -> set[str]:
    """Return the names of the runs that have written here, or have begun to."""
    entries, begun = _read(directory)
    return {*begun, *filter(is_run, (entry.run for entry in entries))}


def is_run(name: object) -> bool:
    """Whether this may be a run's name: files are known by it, and deleted."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{12}", name) is not None


def remove_temporaries(directory: str) -> None:
    """Delete what processes that were killed have left of this list and of links to the latest."""
    if files.is_local(directory) and os.path.isdir(directory):
        with _alone(directory):  # so that nobody else is about to write one
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                found = re.fullmatch(r"(.+)\.[0-9a-f]{8}\.tmp", name)
                if found and (found[1] == NAME or (found[1] == LATEST and os.path.islink(path))):
                    os.unlink(path)


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """Exclude other threads, and other processes where the directory is local."""
    with _ONE_AT_A_TIME, contextlib.ExitStack() as stack:
        if files.is_local(directory):
            directory = os.path.abspath(directory.removeprefix("file://"))
            files.make_directory(directory)
            stack.enter_context(locked(directory))
        yield


def without(directory: str, entries: Sequence[Entry], old: Sequence[Entry]) -> list[Entry]:
    """Delete the files of old entries, which are among the entries, and return the others.

    A file that has not the size of its entry is another one by now, and stays.
    """
    going = {id(entry) for entry in old}  # two may be equal: a file that was written twice
    left = [entry for entry in entries if id(entry) not in going]
    for entry in old:
        path = files.join(directory, entry.name)
        again = any(entry.name == other.name for other in left)  # written anew
        size = -1 if again else _size(path)
        if size != -1 and entry.size in (size, None):
            files.remove(path)
    return left


def _size(path: str) -> int | None:
    """The bytes of a file; None for a directory, and -1 where there is nothing."""
    fs, target = files.filesystem(path)
    try:
        info = fs.info(target)
    except FileNotFoundError:
        return -1
    return None if info["type"] == "directory" else int(info["size"])


def flaw(directory: str, entry: Entry) -> str:
    """Say what is wrong with a file, an empty string if nothing."""
    path = files.join(directory, entry.name)
    size = _size(path)
    if size == -1:
        return "is missing"
    if size is None or entry.size is None:
        return ""
    if size != entry.size:
        return f"has {size} bytes of {entry.size}"
    found = checksum(path)
    if found != entry.crc32:
        return f"is damaged: its CRC-32 is {found}, it was written with {entry.crc32}"
    return ""


def newest_valid(directory: str, *, resumable: bool = False) -> str | None:
    """Return the path of the newest checkpoint that is as it was written, None if there is none.

    Newer ones that are damaged or missing are warned of.

    Args:
        directory: Where a ``CheckpointHook`` has written.
        resumable: Leave out files of ``save_optimizer=False``, which are for loading weights.
    """
    directory = os.fspath(directory)
    passed: list[str] = []
    for entry in reversed(read(directory)):
        if resumable and not entry.resumable:
            continue
        problem = flaw(directory, entry)
        path = files.join(directory, entry.name)
        if not problem:
            if passed:
                warnings.warn(f"{'; '.join(passed)}: {path} is taken instead", stacklevel=2)
            return path
        passed.append(f"{path} {problem}")
    if passed:
        warnings.warn(f"{'; '.join(passed)}: no valid checkpoint is left", stacklevel=2)
    return None
