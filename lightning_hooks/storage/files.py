"""Files that are whole or not there: written beside the target, synced, renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from collections.abc import Iterator
from typing import IO, Any
from uuid import uuid4

import fsspec
import numpy as np
import torch

__all__ = [
    "as_name",
    "atomic_path",
    "atomic_write",
    "exists",
    "filesystem",
    "inner_path",
    "is_inside",
    "is_local",
    "join",
    "load_torch",
    "make_directory",
    "modified",
    "plain",
    "remove",
    "require_writable",
    "save_torch",
    "sync",
    "to_cpu",
]


def is_local(path: str) -> bool:
    """Whether the path is on this machine's file system.

    >>> is_local("/tmp/a.ckpt"), is_local("memory://a.ckpt")
    (True, False)
    """
    return "://" not in path or path.startswith("file://")


def join(directory: str, *names: str) -> str:
    """Join path parts, in a local directory or in a remote one."""
    path = os.path if is_local(directory) else posixpath
    return str(path.join(directory, *names))


def filesystem(path: str) -> tuple[Any, str]:
    """Return fsspec's file system of a path, without remembered listings, and the path in it."""
    fs, target = fsspec.core.url_to_fs(path)
    fs.invalidate_cache()  # another process may have written there
    return fs, target


def exists(path: str) -> bool:
    """Whether there is such a file, local or remote."""
    fs, target = filesystem(path)
    return bool(fs.exists(target))


def modified(path: str) -> float:
    """Return when a file was last written, in seconds since 1970."""
    fs, target = filesystem(path)
    return float(fs.modified(target).timestamp())


def remove(path: str) -> None:
    """Delete a file, or the directory of a sharded checkpoint, unless it is gone already."""
    fs, target = filesystem(path)
    if fs.exists(target):
        fs.rm(target, recursive=True)


def is_inside(name: str) -> bool:
    """Whether a name that is joined to a directory stays in it.

    >>> is_inside("val/acc"), is_inside("a/../../b"), is_inside("/etc/passwd")
    (True, False, False)
    """
    parts = name.replace("\\", "/").split("/")
    absolute = parts[0] == "" or os.path.isabs(name)
    return not absolute and ".." not in parts and "\0" not in name


def as_name(text: str) -> str:
    """Return a text as a part of a file's name: without separators, and not too long.

    >>> as_name("coco/mAP"), as_name("../x"), len(as_name("é" * 999).encode())
    ('coco_mAP', '.._x', 160)
    """
    name = re.sub(r"[/\\\0\n\r]", "_", text)
    return name.encode(errors="replace")[:160].decode(errors="ignore")


def inner_path(text: str) -> str:
    """Return a text as a relative path that leads nowhere else; slashes make folders.

    >>> inner_path("val/acc"), inner_path("../../x"), inner_path("/etc//x")
    ('val/acc', '_/_/x', '_/etc/_/x')
    """
    return "/".join("_" if part in ("", ".", "..") else as_name(part) for part in text.split("/"))


@contextlib.contextmanager
def atomic_path(path: str, tag: str = "") -> Iterator[str]:
    """Give a name to write a local file under; it gets its own when complete and on the disk.

    On an error inside the block nothing appears, and what was there before stays.

    Args:
        path: The file's own name.
        tag: What the other name has in it, ``<path>.<tag>.tmp``; drawn by default.
    """
    path = os.path.abspath(path.removeprefix("file://"))
    directory = os.path.dirname(path)
    make_directory(directory)
    temporary = f"{path}.{tag or uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync(directory)  # the rename itself


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete and on the disk.

    On an error inside the block nothing appears, and what was there before stays.
    """
    if is_local(path):
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            yield file
        return
    # an instance of its own: the transaction would hold back what other threads write
    fs, target = fsspec.core.url_to_fs(path, skip_instance_cache=True)
    fs.makedirs(fs._parent(target), exist_ok=True)
    with fs.transaction, fs.open(target, "wb") as file:
        yield file


def require_writable(directory: str) -> None:
    """Complain if files can never appear in a local directory, which need not be there yet.

    Raises:
        PermissionError: if this process may not write there, or nobody may.
    """
    if not is_local(directory):
        return
    there = os.path.abspath(directory.removeprefix("file://"))
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "nothing can be written to", there)


def make_directory(path: str) -> None:
    """Make a local directory and those above it, each known to the disk."""
    if not os.path.isdir(path):
        make_directory(os.path.dirname(path))
        os.makedirs(path, exist_ok=True)
        sync(os.path.dirname(path))


def sync(path: str) -> None:
    """Wait until a file, or a directory's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_torch(obj: Any, path: str) -> None:
    """``torch.save`` that leaves a whole file or none, as :func:`atomic_write` does."""
    if is_local(path):
        with atomic_path(path) as temporary:
            torch.save(obj, temporary)  # by name: it need not go through Python's buffers
        return
    with atomic_write(path) as file:
        torch.save(obj, file)


def load_torch(path: str, map_location: Any = "cpu", weights_only: bool = True) -> Any:
    """``torch.load`` from a local or remote file: of plain types and tensors, unless told else."""
    with fsspec.open(path, "rb") as file, torch.serialization.safe_globals(_numpy_globals()):
        return torch.load(file, map_location=map_location, weights_only=weights_only)


def _numpy_globals() -> list[Any]:
    """What a file needs whose ``meta`` holds numpy numbers, as old ones do (a best score)."""
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    kinds = {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdU"}
    old = [(scalar, "numpy.core.multiarray.scalar")]
    old.append((array, "numpy.core.multiarray._reconstruct"))
    return [scalar, array, np.dtype, np.ndarray, *kinds, *old]


def plain(value: Any) -> Any:
    """Return the value in types that ``torch.load(weights_only=True)`` reads.

    numpy's scalars and arrays become numbers and lists, paths become strings, mappings dicts;
    what has no such form becomes its ``str``.

    >>> plain({"score": np.float64(0.5), "ids": np.arange(2)})
    {'score': 0.5, 'ids': [0, 1]}
    """
    if isinstance(value, np.generic):  # first: np.float64 is a float, np.str_ a str
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.Tensor)):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, (list, set, frozenset)):
        return [plain(v) for v in value]
    if hasattr(value, "items"):
        return {plain(k): plain(v) for k, v in value.items()}
    return str(value)


def plain_groups(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with numpy's numbers in its groups, as old hooks set, plain.

    >>> plain_groups({"param_groups": [{"weight_decay": np.float64(0.1), "params": [0]}]})
    {'param_groups': [{'weight_decay': 0.1, 'params': [0]}]}
    """
    groups = [
        {k: v.item() if isinstance(v, np.generic) else v for k, v in group.items()}
        for group in state.get("param_groups", ())
    ]
    return {**state, "param_groups": groups} if groups else state


def to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict whose tensors are on the CPU."""
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
