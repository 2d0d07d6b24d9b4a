"""Write local and remote files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import posixpath
import stat
import threading
from collections.abc import Iterator
from typing import IO, Any
from uuid import uuid4

import fsspec

from lightning_hooks.storage.locks import locked
from lightning_hooks.utils.regular_files import NotRegularError, regular
from lightning_hooks.utils.warn import warn

__all__ = [
    "absolute",
    "atomic_path",
    "atomic_write",
    "delete",
    "exclusive",
    "exists",
    "filesystem",
    "is_local",
    "join",
    "locked_path",
    "make_directory",
    "opened",
    "plain",
    "read_bytes",
    "remove",
    "require_writable",
    "size_of",
    "sync",
    "write_bytes",
]


def is_local(path: str) -> bool:
    """Return whether a path is on this machine's file system.

    >>> is_local("/tmp/a.ckpt"), is_local("memory://a.ckpt")
    (True, False)
    """
    return "://" not in path or path.startswith("file://")


def plain(path: str) -> str:
    """Return a local path without ``file://`` and ``~``; a remote path stays.

    >>> plain("file:///tmp/a.ckpt"), plain("s3://bucket/a.ckpt"), plain("")
    ('/tmp/a.ckpt', 's3://bucket/a.ckpt', '.')
    """
    return os.path.expanduser(path.removeprefix("file://")) or "."


def absolute(path: str) -> str:
    """Return a local path as an absolute path; a remote path stays.

    >>> absolute("/tmp/../a.ckpt"), absolute("s3://bucket/a.ckpt")
    ('/a.ckpt', 's3://bucket/a.ckpt')
    """
    return os.path.abspath(plain(path)) if is_local(path) else path


def join(directory: str, *names: str) -> str:
    """Join the parts of a path in a local or remote directory."""
    path = os.path if is_local(directory) else posixpath
    return str(path.join(directory, *names))


def filesystem(path: str) -> tuple[Any, str]:
    """Return fsspec's file system of a path, without cached listings, and the inner path."""
    if is_local(path):  # no URL: "::" in a local path chains nothing
        return fsspec.filesystem("file"), absolute(path)
    fs, target = fsspec.core.url_to_fs(path)
    fs.invalidate_cache()  # another process may have written there
    return fs, target


def opened(path: str) -> Any:
    """Return a local regular file or a remote file, open for reading its bytes."""
    if is_local(path):  # without fsspec: read at each start of a fit
        return open(plain(path), "rb", opener=regular)
    fs, target = filesystem(path)
    return fs.open(target, "rb")


def exists(path: str) -> bool:
    """Return whether a local or remote file or directory exists."""
    fs, target = filesystem(path)
    return bool(fs.exists(target))


def size_of(path: str) -> int | None:
    """Return the size of a file in bytes, None for a directory, a pipe or a device.

    Raises:
        FileNotFoundError: for a missing path.
    """
    if is_local(path):  # without fsspec: a save looks at each file that it keeps
        found = os.stat(plain(path))
        return found.st_size if stat.S_ISREG(found.st_mode) else None
    fs, target = filesystem(path)
    info = fs.info(target)
    return None if info["type"] in ("directory", "other") else int(info["size"])


def read_bytes(path: str) -> bytes | None:
    """Return the contents of a local or remote file; None if missing, empty for a device."""
    try:
        with opened(path) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None
    except NotRegularError:
        return b""


def remove(path: str) -> None:
    """Delete a local or remote file; ignore a missing file."""
    fs, target = filesystem(path)
    if fs.isfile(target):
        fs.rm(target)


def delete(*paths: str) -> None:
    """Delete local files; leave files that are missing or cannot be deleted."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


# -- writing -------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_path(path: str, tag: str = "") -> Iterator[str]:
    """Yield a temporary local path; sync and rename the file to ``path`` after the block.

    If the block raises, the temporary file is deleted and an older file stays unchanged.

    Args:
        path: The final path.
        tag: A part of the temporary path ``<path>.<tag>.tmp``; random by default.
    """
    path = absolute(path)
    directory = os.path.dirname(path)
    make_directory(directory)
    temporary = f"{path}.{tag or uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        failure = _disk_error(error, temporary)
        delete(temporary)
        if failure is None:
            raise
        raise OSError(failure.errno, failure.strerror, path) from error
    sync(directory)  # the rename itself


def _disk_error(error: BaseException, path: str) -> OSError | None:
    """Return the disk's error behind a failed write, unless the error already has a path."""
    if isinstance(error, OSError):
        return error if error.filename is None else None
    if isinstance(error, RuntimeError):  # torch hides the disk's error; provoke the error again
        try:
            with open(path, "ab") as file:
                file.write(bytes(1 << 20))
            sync(path)
        except OSError as disk_error:
            return disk_error
    return None


@contextlib.contextmanager
def locked_path(path: str, tag: str) -> Iterator[str]:
    """Yield a path as :func:`atomic_path` does, with a lock on the temporary file.

    A temporary file without a lock is the leftover of a killed process.
    """
    with contextlib.ExitStack() as lock, atomic_path(path, tag) as temporary:
        if os.path.islink(temporary) or not os.path.isfile(temporary):
            delete(temporary)  # a stranger's: it leads elsewhere
        lock.enter_context(locked(temporary, os.O_RDWR | os.O_CREAT))
        yield temporary


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Open a local or remote file for writing; the file appears when the block ends.

    If the block raises, an older file stays unchanged.
    """
    if is_local(path):
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            yield file
        return
    # a new instance: a transaction of a shared instance would hold back other threads' files
    fs, target = fsspec.core.url_to_fs(path, skip_instance_cache=True)
    fs.makedirs(posixpath.dirname(target), exist_ok=True)
    with fs.transaction, fs.open(target, "wb") as file:
        yield file


def write_bytes(path: str, contents: bytes) -> None:
    """Write a local or remote file; after an error, an older file stays unchanged."""
    with atomic_write(path) as file:
        file.write(contents)


def require_writable(directory: str) -> None:
    """Raise if no file can be written to a local directory; the directory may be missing yet.

    Raises:
        NotADirectoryError: for a file in the place of the directory or a parent.
        PermissionError: if the process lacks the permission, or the disk is read-only.
    """
    if not is_local(directory):
        return
    path = absolute(directory)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "a folder is needed, and this is a file", path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "nothing can be written to", path)


def make_directory(path: str) -> None:
    """Make a local directory and its parents, and sync each."""
    if not os.path.isdir(path):
        make_directory(os.path.dirname(path))
        os.makedirs(path, exist_ok=True)
        sync(os.path.dirname(path))


def sync(path: str) -> None:
    """Wait until a file, or a directory's list of names, is on the disk.

    Network shares and encrypted folders may not know how to sync a directory, which is noted once.

    Raises:
        OSError: if the file cannot be synced; with the path.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in CANNOT_SYNC and os.path.isdir(path):
            _note_without_sync(path)
            return
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)


CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""The answers of a file system that has nothing to sync."""


@functools.cache
def _note_without_sync(directory: str) -> None:
    warn(
        f"the file system of {directory} cannot sync a directory: after a power failure the newest "
        "file may be missing",
    )


_THREADS = threading.Lock()


@contextlib.contextmanager
def exclusive(path: str) -> Iterator[bytes | None]:
    """Exclude other writers of a file inside the block; yield the contents, None if missing.

    Other threads wait. For a local file, other processes wait too: the directory is locked.
    """
    with _THREADS, contextlib.ExitStack() as stack:
        if is_local(path):
            directory = os.path.dirname(absolute(path))
            make_directory(directory)
            stack.enter_context(locked(directory))
        yield read_bytes(path)
