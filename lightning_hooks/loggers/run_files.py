"""Find the text files of a run, and copy the files elsewhere after the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lightning_hooks.storage.files import is_local, join

__all__ = ["check_suffix", "copy_files", "files_of_run"]

_TRACKERS = ("wandb", "mlruns", "mlartifacts")  # folders that trackers own


def files_of_run(runner: Any, suffix: str | tuple[str, ...]) -> Iterator[str]:
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
    runner: Any, system: Any, out_dir: str, suffix: str | tuple[str, ...], *, keep_local: bool
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
            runner.logger.info("%s was copied to %s", local, remote)
    except Exception as error:
        runner.logger.warning(
            "the text logs could not all be copied to %s (%s: %s)",
            *(target, type(error).__name__, error),
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
