"""The files of a run that go elsewhere when it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lightning_hooks.files import is_local

__all__ = ["check_suffix", "files_of_run"]

_TRACKERS = ("wandb", "mlruns", "mlartifacts")  # what trackers keep there is theirs


def files_of_run(runner: Any, suffix: str | tuple[str, ...]) -> Iterator[str]:
    """Yield the files below ``runner.work_dir`` that end in ``suffix``, relative to it.

    Hidden files and folders and those of trackers are left out. Where the work dir is the
    current folder, which nobody chose for this run alone, only files that bear the run's
    timestamp are meant.
    """
    work_dir = runner.work_dir
    if not is_local(work_dir) or not os.path.isdir(work_dir):
        return
    own = "" if not os.path.samefile(work_dir, os.curdir) else runner.timestamp
    for folder, inner, names in os.walk(work_dir):
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _TRACKERS)
        for name in sorted(names):
            if name.endswith(suffix) and name.startswith(own) and not name.startswith("."):
                yield os.path.relpath(os.path.join(folder, name), work_dir)


def check_suffix(out_suffix: Any) -> str | tuple[str, ...]:
    """Return ``out_suffix`` if it is a string or a sequence of strings.

    Raises:
        TypeError: if it is something else.
    """
    if isinstance(out_suffix, str):
        return out_suffix
    if isinstance(out_suffix, (tuple, list)) and all(isinstance(s, str) for s in out_suffix):
        return tuple(out_suffix)
    raise TypeError(f"out_suffix must be a string or a tuple of strings, got {out_suffix!r}")
