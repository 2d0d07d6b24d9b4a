"""mmcv's helpers for files and directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "check_file_exist",
    "find_vcs_root",
    "fopen",
    "is_filepath",
    "mkdir_or_exist",
    "scandir",
    "symlink",
]


def is_filepath(x: object) -> bool:
    """Return whether ``x`` is a string or a Path."""
    return isinstance(x, (str, Path))


def fopen(filepath: str | Path, *args: Any, **kwargs: Any) -> Any:
    """Open a file given by a string or a Path."""
    if not is_filepath(filepath):
        raise ValueError(f"filepath must be a str or a Path, got {filepath!r}")
    return open(filepath, *args, **kwargs)


def check_file_exist(filename: str, msg_tmpl: str = 'file "{}" does not exist') -> None:
    """Raise FileNotFoundError unless the file exists."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def mkdir_or_exist(dir_name: str, mode: int = 0o777) -> None:
    """Make a directory and missing parents; ``~`` is expanded."""
    if dir_name != "":
        os.makedirs(os.path.expanduser(dir_name), mode=mode, exist_ok=True)


def symlink(src: str, dst: str, overwrite: bool = True, **kwargs: Any) -> None:
    """Make a symbolic link; ``overwrite`` replaces an existing file."""
    if overwrite and os.path.lexists(dst):
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def scandir(
    dir_path: str | Path,
    suffix: str | tuple[str, ...] | None = None,
    recursive: bool = False,
    case_sensitive: bool = True,
) -> Iterator[str]:
    """Yield the files of a directory as relative paths, without hidden files.

    Args:
        dir_path: The directory.
        suffix: Required suffix, or a tuple of allowed suffixes.
        recursive: Whether subdirectories are searched too.
        case_sensitive: Whether ``.JPG`` differs from ``.jpg``.

    Raises:
        TypeError: at once, for an argument of the wrong type.
    """
    if not is_filepath(dir_path):
        raise TypeError(f"dir_path must be a str or a Path, got {dir_path!r}")
    if not (suffix is None or isinstance(suffix, (str, tuple))):
        raise TypeError(f"suffix must be a str or a tuple of str, got {suffix!r}")
    endings = (suffix,) if isinstance(suffix, str) else suffix
    if endings is not None and not case_sensitive:
        endings = tuple(ending.lower() for ending in endings)

    def wanted(path: str) -> bool:
        return endings is None or (path if case_sensitive else path.lower()).endswith(endings)

    def scan(directory: str) -> Iterator[str]:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file():
                    path = os.path.relpath(entry.path, dir_path)
                    if not entry.name.startswith(".") and wanted(path):
                        yield path
                elif recursive and entry.is_dir():
                    yield from scan(entry.path)

    return scan(os.fspath(dir_path))


def find_vcs_root(path: str, markers: tuple[str, ...] = (".git",)) -> str | None:
    """Return the closest directory with a marker, from ``path`` upward, or None."""
    start = Path(path).expanduser().absolute()
    for directory in [start, *start.parents]:
        if directory.is_dir() and any((directory / marker).exists() for marker in markers):
            return str(directory)
    return None
