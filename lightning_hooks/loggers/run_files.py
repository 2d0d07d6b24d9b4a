"""Name, find and copy the text files of a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from lightning_hooks.loggers import log_file
from lightning_hooks.storage.files import filesystem, is_local, join
from lightning_hooks.utils.secrets import describe, without_secrets

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["check_suffix", "claim_timestamp", "copy_files", "files_of_run"]

_TRACKERS = ("wandb", "mlruns", "mlartifacts")  # folders that trackers own


def claim_timestamp(runner: Runner, names: Collection[str] = ()) -> None:
    """Set the timestamp in the names of the run's files.

    The file ``.{timestamp}.run`` in the work dir lists the ids of the runs with the timestamp. So a
    resumed run finds its earlier timestamp without trust in a file name from the checkpoint. A new
    run gets a number if another run began in the same second; a user's own timestamp stays.

    Args:
        runner: The runner.
        names: Names of files in the checkpoint, to choose among several timestamps of the run.
    """
    if runner.writes_mmcv_files:  # no checkpoint of such a run knows the files
        return
    folder, run = runner.work_dir.removeprefix("file://"), runner.run_id.encode()
    stem, number = runner.timestamp, 1
    if stem == runner.unclaimed_timestamp:
        found = [s for s in _timestamps(folder) if run in log_file.read(_list(folder, s)).split()]
        found.sort(key=lambda stamp: f"{stamp}.log.json" in names)
        while not found and not log_file.create(_list(folder, runner.timestamp)):
            number += 1
            runner.timestamp = f"{stem}_{number}"
        runner.timestamp = [runner.timestamp, *found][-1]
    runner.unclaimed_timestamp = ""
    path = _list(folder, runner.timestamp)
    with contextlib.suppress(OSError):  # the first line of the log will warn
        if run not in log_file.read(path).split():
            log_file.append(path, run + b"\n")


def _list(folder: str, timestamp: str) -> str:
    return join(folder, f".{timestamp}.run")


def _timestamps(folder: str) -> list[str]:
    """Return the timestamps of all runs in a local or remote folder."""
    system, target = filesystem(folder)
    try:
        names = sorted(os.path.basename(path) for path in system.ls(target, detail=False))
    except OSError:
        return []
    return [name[1:-4] for name in names if name.startswith(".") and name.endswith(".run")]


def files_of_run(runner: Runner, suffix: str | tuple[str, ...]) -> Iterator[str]:
    """Yield the run's files with a ``suffix``, as paths relative to ``runner.work_dir``.

    Hidden files and folders and trackers' folders are left out. If the work dir is the current
    folder, which has other files too, only names with the run's timestamp as prefix are yielded.
    """
    work_dir = runner.work_dir.removeprefix("file://")
    if not is_local(work_dir) or not os.path.isdir(work_dir):
        return
    prefix = runner.timestamp if os.path.samefile(work_dir, os.curdir) else ""
    for folder, inner, names in os.walk(work_dir):
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _TRACKERS)
        for name in sorted(names):
            if name.endswith(suffix) and name.startswith(prefix) and not name.startswith("."):
                yield os.path.relpath(os.path.join(folder, name), work_dir)


def copy_files(
    runner: Runner, system: Any, out_dir: str, suffix: str | tuple[str, ...], *, keep_local: bool
) -> None:
    """Copy the run's files into a folder below ``out_dir`` with the name of the work dir.

    An error becomes a warning: the run has ended well, and the work dir still has the files.

    Args:
        runner: The runner.
        system: fsspec's file system of ``out_dir``.
        out_dir: The folder to copy to.
        suffix: Endings of the names of the files.
        keep_local: Whether the files stay in the work dir too.
    """
    work_dir = runner.work_dir.removeprefix("file://")
    target = join(out_dir, os.path.basename(work_dir.rstrip("/" + os.sep)))
    try:
        for name in files_of_run(runner, suffix):
            local, remote = join(work_dir, name), join(target, name)
            system.makedirs(os.path.dirname(remote), exist_ok=True)
            system.put_file(local, remote)
            if not keep_local:
                os.remove(local)
            runner.logger.info("%s was copied to %s", local, without_secrets(remote))
    except Exception as error:
        runner.logger.warning(
            "the text logs could not all be copied to %s (%s)",
            *(without_secrets(target), describe(error)),
        )


def check_suffix(out_suffix: Any) -> str | tuple[str, ...]:
    """Return ``out_suffix``, a string or a sequence of strings.

    Raises:
        TypeError: for any other value.
    """
    if isinstance(out_suffix, str):
        return out_suffix
    if isinstance(out_suffix, (tuple, list)) and all(isinstance(s, str) for s in out_suffix):
        return tuple(out_suffix)
    raise TypeError(f"out_suffix must be a string or a tuple of strings, got {out_suffix!r}")
