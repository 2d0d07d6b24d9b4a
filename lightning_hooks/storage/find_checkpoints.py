"""Find the newest and the best checkpoint in the list of a directory."""

from __future__ import annotations

import glob
import itertools
import os
import re
import string
from collections.abc import Iterable

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.entry import Entry, best_series
from lightning_hooks.utils.arguments import check_path
from lightning_hooks.utils.secrets import without_user
from lightning_hooks.utils.warn import warn

__all__ = [
    "best_checkpoint",
    "best_first",
    "best_valid",
    "last_checkpoint",
    "newest_entry",
    "newest_valid",
    "nothing_found",
    "numbered",
]

ENDINGS = (".pth", ".pt", ".ckpt", ".safetensors")
"""The endings of files that may be checkpoints."""


def best_checkpoint(directory: str | os.PathLike[str], key: str | None = None) -> str:
    """Return the path of a run's best checkpoint, in any process.

    The file is compared with its checksum; a warning names better files that are damaged. Of
    several runs in the directory, the one that last saved a best checkpoint counts::

        module = Digits.load_from_checkpoint(best_checkpoint("work_dirs/digits"))

    Args:
        directory: The work directory of a run.
        key: The name of the score, as "val_loss"; None for the key of the latest best file.

    Raises:
        FileNotFoundError: if there is no intact file; with the files that are there.
    """
    checked = str(check_path("directory", directory))
    path = best_valid(checked, key)
    if path is None:
        raise nothing_found(checked, f"best checkpoint by {key!r}" if key else "best checkpoint")
    return path


def last_checkpoint(directory: str | os.PathLike[str]) -> str:
    """Return the path of a run's last checkpoint, in any process.

    The file is compared with its checksum; a warning names newer files that are damaged.

    Args:
        directory: The work directory of a run.

    Raises:
        FileNotFoundError: if there is no intact file; with the files that are there.
    """
    checked = str(check_path("directory", directory))
    path = newest_valid(checked)
    if path is None:
        raise nothing_found(checked, "checkpoint")
    return path


def nothing_found(directory: str, kind: str) -> FileNotFoundError:
    """Return the error for a directory without a kind of checkpoint, with what is there.

    >>> nothing_found("no/such/place", "best checkpoint")
    FileNotFoundError('no/such/place has no intact best checkpoint: the directory is missing')
    """
    if listed := manifest.by_name(manifest.read(directory)):
        there = f"its list has {', '.join(listed)}"
    elif not files.exists(directory):
        there = "the directory is missing"
    else:
        fs, target = files.filesystem(directory)
        paths = [str(path) for path in fs.ls(target, detail=False)]
        names = sorted(os.path.basename(path) for path in paths if path.endswith(ENDINGS))
        content = f"the files {', '.join(names)}" if names else "no other file"
        state = (
            "an empty or damaged" if files.exists(files.join(directory, manifest.NAME)) else "no"
        )
        there = f"it has {state} {manifest.NAME}, and {content}"
    return FileNotFoundError(f"{without_user(directory)} has no intact {kind}: {there}")


def best_valid(directory: str, key: str | None = None) -> str | None:
    """Return the path of the best intact checkpoint, None without any.

    Warn of better files that are damaged or missing.

    Args:
        directory: The directory of the files.
        key: The name of the score; None for the key of the latest best file.
    """
    best = _first_intact(directory, best_first(directory, key))
    return None if best is None else files.join(directory, best.name)


def best_first(directory: str, key: str | None = None) -> list[Entry]:
    """Return the best files of the run that has saved one last, the best first.

    Warn if no key is given, and the run has best files by several.
    """
    series = best_series(key or "")
    scored = manifest.by_name(
        entry
        for entry in manifest.read(directory)
        if entry.score is not None
        and (entry.series == series if key else entry.series.startswith(series))
    )
    if not scored:
        return []
    last = next(reversed(scored.values()))
    metrics = sorted({str(entry.metric) for entry in scored.values() if entry.run == last.run})
    if len(metrics) > 1:
        warn(
            f"{without_user(directory)} has best files by {' and '.join(metrics)}: those by "
            f"{last.metric} are taken; name the score, or the files, to take others"
        )
    of_run = [e for e in scored.values() if (e.run, e.series) == (last.run, last.series)]
    return sorted(of_run, key=lambda e: e.score or 0, reverse=last.rule == "greater")


def newest_valid(directory: str, *, resumable: bool = False) -> str | None:
    """Return the path of the newest intact checkpoint, None without any.

    Of files of one iteration, a ``CheckpointHook``'s is newer than a best file. Warn of newer files
    that are damaged or missing.

    Args:
        directory: A ``CheckpointHook``'s directory.
        resumable: Whether to skip files of ``save_optimizer=False``, for loading weights only.
    """
    directory = files.plain(os.fspath(directory))
    newest = newest_entry(directory, resumable=resumable)
    return None if newest is None else files.join(directory, newest.name)


def newest_entry(directory: str, *, resumable: bool = False) -> Entry | None:
    """Return the entry of the file that :func:`newest_valid` finds, None without any."""
    entries = [entry for entry in manifest.read(directory) if entry.resumable or not resumable]
    ties = itertools.groupby(reversed(entries), key=lambda entry: (entry.run, entry.iter))
    newest_first = (sorted(tie, key=lambda entry: entry.score is not None) for _, tie in ties)
    return _first_intact(directory, itertools.chain.from_iterable(newest_first))


def _first_intact(directory: str, entries: Iterable[Entry]) -> Entry | None:
    """Return the entry of the first intact file; warn of the damaged files before."""
    problems: dict[str, str] = {}  # by path: several hooks may list a file
    intact, outcome = None, "no valid checkpoint is left"
    for entry in entries:
        path = files.join(directory, entry.name)
        problem = entry.flaw(directory)
        if not problem:
            problems.pop(path, None)  # from the entry of a file that was never renamed
            intact, outcome = entry, f"{path} is taken instead"
            break
        problems[path] = problem
    if problems:
        told = "; ".join(f"{path} {problem}" for path, problem in problems.items())
        warn(f"{told}: {outcome}")
    return intact


def numbered(directory: str, template: str) -> list[tuple[str, int]]:
    """Return the file names of a template in a directory, each with its number."""
    parts = [(text, field) for text, field, _, _ in string.Formatter().parse(template)]
    wildcard = "".join(glob.escape(text) + "*" * (field is not None) for text, field in parts)
    pattern = "".join(re.escape(text) + r"(\d+)" * (field is not None) for text, field in parts)
    if files.is_local(directory):  # in a third of fsspec's time, at each start of a fit
        names = glob.glob(wildcard, root_dir=files.plain(directory))
    else:
        fs, target = files.filesystem(directory)
        paths = fs.glob(f"{glob.escape(target)}/{wildcard}")
        names = [str(path)[len(target.rstrip("/")) + 1 :] for path in paths]
    matches = [(name, re.fullmatch(pattern, name.replace(os.sep, "/"))) for name in names]
    return [(name, int(match[1])) for name, match in matches if match]
