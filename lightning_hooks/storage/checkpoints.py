"""Save checkpoints in a directory, and delete superseded checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

import torch

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.checksum import checksum
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.locks import locked
from lightning_hooks.storage.manifest import LATEST, NAME, ChooseOld
from lightning_hooks.utils.warn import warn

__all__ = ["Target", "claim", "clean_up", "link_latest", "record", "save", "superseded"]


OWNER = "lightning_hooks"
"""The last part of a temporary file's name, after the run: ``epoch_1.pth.<run>.<owner>.tmp``."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The place of a new checkpoint; see :class:`Entry`."""

    directory: str
    name: str
    run: str
    series: str
    resumable: bool = True
    is_latest: bool = False
    """Whether to point the link ``latest.pth`` at the file; a remote directory has no link."""
    score: float | None = None
    rule: str | None = None
    earlier: frozenset[Entry] = frozenset()
    """The entries listed before the run began, perhaps beyond the file resumed from."""
    choose_old: ChooseOld | None = None
    """Chooses the superseded files to delete; None keeps all."""

    @functools.cached_property
    def path(self) -> str:
        """The path of the file."""
        return files.join(self.directory, self.name)


def save(checkpoint: dict[str, Any], target: Target) -> list[str]:
    """Write a checkpoint, then delete superseded files; return the deleted names.

    A kill at any moment leaves an intact newest file. The entry is listed before the rename, and
    older files are deleted after the rename. The next process deletes a leftover temporary file,
    known by the name and by the lost lock.

    Args:
        checkpoint: The contents.
        target: The place and the fields of the entry.
    """
    with contextlib.ExitStack() as writing:
        if files.is_local(target.path):
            temporary = writing.enter_context(
                files.locked_path(target.path, f"{target.run}.{OWNER}")
            )
            torch.save(checkpoint, temporary)
            files.sync(temporary)  # now: renaming holds up other writers of the list
            size, crc32 = os.path.getsize(temporary), checksum(temporary)
        else:
            file = writing.enter_context(files.atomic_write(target.path))
            torch.save(checkpoint, file)
            size, crc32 = file.tell(), None
            file.close()
        return record(target, checkpoint["meta"], size, crc32, writing.close)


def record(
    target: Target,
    meta: Mapping[str, Any],
    size: int | None = None,
    crc32: str | None = None,
    rename: Callable[[], object] = lambda: None,
) -> list[str]:
    """List a checkpoint and delete superseded files; return the deleted names.

    Args:
        target: The place and the fields of the entry.
        meta: The epochs and iterations done: ``epoch``, ``iter``.
        size: The size of the file in bytes; None for a folder, or to measure another writer's file.
        crc32: The checksum; None to measure another writer's file.
        rename: Renames the temporary file, for a file not yet in place.
    """
    if size is None and crc32 is None:
        size, crc32 = _measured(target.path)
    time = datetime.datetime.now().astimezone().isoformat(timespec="microseconds")
    new = Entry(
        *(target.name, size, crc32, meta["epoch"], meta["iter"], time, target.run, target.series),
        *(target.resumable, target.score, target.rule),
    )
    with manifest.opened(target.directory) as listed:
        # an older entry of the name stays, and describes the file until the rename
        is_newest = listed.insert(new, target.earlier)
        listed.write()
        rename()
        if target.is_latest and is_newest and files.is_local(target.directory):
            _link(target.directory, target.name)
        return listed.prune(target.run, target.series, target.choose_old)


def _measured(path: str) -> tuple[int | None, str | None]:
    """Return size and checksum of another writer's file; the size alone for a remote file."""
    try:
        size = files.size_of(path)
    except FileNotFoundError:  # the writer has not finished
        size = None
    return size, checksum(path) if size is not None and files.is_local(path) else None


def claim(target: Target) -> list[str]:
    """List a file just written by another hook of the run in a further series.

    The file stays until superseded in all series. Delete the superseded files of the further
    series, and return the deleted names.
    """
    listed = reversed(manifest.read(target.directory))
    entry = next(e for e in listed if (e.run, e.name) == (target.run, target.name))
    meta = {"epoch": entry.epoch, "iter": entry.iter}
    target = dataclasses.replace(target, resumable=entry.resumable)
    return record(target, meta, entry.size, entry.crc32)


def superseded(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Return the entries to delete: all but the last ``limit`` names; -1 is no limit.

    For a name written twice, the older entry is returned and the newer entry counts.
    """
    kept: dict[str, Entry] = {}
    for entry in reversed(entries):
        if limit < 1 or len(kept) < limit:
            kept.setdefault(entry.name, entry)
    return [entry for entry in entries if kept.get(entry.name) is not entry]


def clean_up(
    directory: str, run: str, series: str, choose_old: ChooseOld | None, resumed_at: int
) -> list[str]:
    """Delete leftovers of killed processes in the directory of a new run.

    Args:
        directory: The directory of the run's checkpoints.
        run: The run.
        series: The series of the run to delete superseded files of.
        choose_old: Chooses the superseded files; None keeps all.
        resumed_at: The iterations done in the file to resume from, 0 for none. If the list has
            newer files, which may be damaged, nothing is superseded.

    Returns:
        The names of superseded files.
    """
    is_local, path = files.is_local(directory), files.plain(directory)
    if not ((os.path.isdir(path) and os.listdir(path)) if is_local else resumed_at > 0):
        return []  # the usual case: a new directory
    with manifest.opened(directory) as listed:
        earlier = {entry.run for entry in listed.entries}
        if is_local:
            _remove_temporaries(path)
        if resumed_at > 0:
            listed.match_entries_to_files(run)
        old = listed.prune(run, series, choose_old, resumed_at)
    if is_local:
        _remove_unfinished(path, earlier, own=run)
    return old


def _remove_temporaries(directory: str) -> None:
    """Delete temporary lists and links of killed processes."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        match = re.fullmatch(r"(.+)\.[0-9a-f]{8}\.tmp", name)
        if match and (match[1] == NAME or (match[1] == LATEST and os.path.islink(path))):
            os.unlink(path)


def _remove_unfinished(directory: str, listed: Collection[str], own: str) -> None:
    """Delete temporary files of killed processes in a local directory.

    A file locked by a writing process stays.

    Args:
        directory: The directory.
        listed: Runs in the list, whose files are searched for in subdirectories too.
        own: The run of this process alone, whose files are deleted even without locks.
    """
    for folder, folders, names in os.walk(directory):
        if not listed:
            folders.clear()
        for name in names:
            match = re.fullmatch(rf".+\.([0-9a-f]{{12}})\.{OWNER}\.tmp", name)
            if match and (folder == directory or match[1] in listed):
                path = os.path.join(folder, name)
                # a missing or foreign file is no reason to end a run
                flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
                with (
                    contextlib.suppress(OSError),
                    locked(path, flags, wait=False) as is_locked,
                ):
                    if is_locked or (is_locked is None and match[1] == own):
                        os.unlink(path)


def link_latest(directory: str, name: str) -> None:
    """Point ``latest.pth`` at a file of the same directory, in one step; not in a remote one."""
    if files.is_local(directory):
        with locked(files.absolute(directory)):  # without a lock, it is the leftover of a kill
            _link(directory, name)


def _link(directory: str, name: str) -> None:
    link = os.path.join(files.absolute(directory), LATEST)
    temporary = f"{link}.{uuid4().hex[:8]}.tmp"
    try:
        os.symlink(name, temporary)
        os.replace(temporary, link)
    except OSError as error:  # a folder has this name, or the disk has no links
        files.delete(temporary)
        warn(
            f"{link} cannot be pointed at the newest checkpoint ({error.strerror}): remove the "
            "obstacle, or write create_symlink=False. The checkpoint itself is written",
        )
