"""The text files of a run: append, cut back, name, find and copy."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import posixpath
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import fsspec

from lightning_hooks.storage.files import filesystem, is_local, join
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.secrets import describe, without_secrets

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["LogFile", "check_suffix", "claim_timestamp", "copy_files", "files_of_run"]

_TRACKERS = ("wandb", "mlruns", "mlartifacts")  # folders that trackers own
_BLOCK = 1 << 20  # bytes read at once
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def create(path: str, data: bytes) -> bool:
    """Create a file; return False if the file existed.

    Of two simultaneous processes only one creates a local file. Errors other than an existing
    file return True: the first line will warn.
    """
    try:
        if is_local(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with os.fdopen(_open(path, _APPENDING | os.O_EXCL), "wb") as file:
                file.write(data)
            return True
        fs, target = filesystem(path)
        if fs.exists(target):
            return False
        append(path, data, local=False)
        return True
    except FileExistsError:
        return False
    except Exception:  # the first line will warn
        return True


def _open(path: str, flags: int) -> int:
    """Open a regular file without following links."""
    return regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def append(path: str, data: bytes, local: bool = True) -> None:
    """Append to a local or remote file; a full disk takes no part of the data."""
    if not local:
        try:
            remote = fsspec.open(path, "ab").open()
        except FileNotFoundError:  # some file systems append to existing files alone
            remote = fsspec.open(path, "wb").open()
        with remote:
            remote.write(data)
        return
    file = _open(path, _APPENDING)  # fsspec would take half a millisecond, open() twice the calls
    try:
        written = os.write(file, data)
        if written < len(data):
            os.ftruncate(file, os.fstat(file).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def read(path: str) -> bytes:
    """Return the content of a local or remote file; empty if missing or unreadable."""
    try:
        with _opened(path) as file:
            return bytes(file.read())
    except OSError:
        return b""


def _opened(path: str) -> Any:
    """Return a local or remote file, open for reading its bytes."""
    local = os.fdopen(_open(path, os.O_RDONLY), "rb") if is_local(path) else None
    return local or fsspec.open(path, "rb")


def _measure(file: IO[bytes], size: int, crc: int, end: int) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file up to ``end``.

    Args:
        file: The file.
        size: The bytes of the beginning, which is not read.
        crc: The CRC-32 of the beginning.
        end: The bytes to measure at most.
    """
    file.seek(size)
    while size < end and (block := file.read(min(_BLOCK, end - size))):
        size, crc = size + len(block), zlib.crc32(block, crc)
    return size, crc


class LogFile:
    """Appends lines to a file in a work dir, local or on a file system of fsspec.

    The file is closed after each line, so a kill loses no line. A failed write costs one warning,
    not the run. Several objects may append to the same file.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path, self._is_local = path, is_local(path)
        self._failed = False
        self._measured = 0, 0  # size and CRC-32 of what was read
        if self._is_local:
            with contextlib.suppress(OSError):  # the first line will warn
                os.makedirs(os.path.dirname(path), exist_ok=True)

    @property
    def name(self) -> str:
        """The file's name in the work dir."""
        return self.path.rpartition("/" if "://" in self.path else os.sep)[2]

    def append(self, line: str, logger: logging.Logger) -> None:
        """Add a line.

        Args:
            line: The text without a newline.
            logger: Warns if the file cannot be written.
        """
        if self._failed:
            return
        try:
            append(self.path, line.encode(errors="backslashreplace") + b"\n", self._is_local)
        except Exception as error:  # a full disk, a lost mount: training goes on
            self._failed = True
            logger.warning(
                "%s cannot be written (%s); this run goes on without it",
                *(self.path, describe(error)),
            )

    def state(self, logger: logging.Logger) -> dict[str, Any] | None:
        """Return the file's ``size`` and ``crc32`` for a checkpoint; each byte is read once.

        Args:
            logger: Warns if the file cannot be read.

        Returns:
            None if the file cannot be read: a resumed run then cuts no line off.
        """
        try:
            with _opened(self.path) as file:
                self._measured = _measure(file, *self._measured, end=sys.maxsize)
        except FileNotFoundError:
            pass
        except Exception as error:  # a lost mount, an expired token: the checkpoint is written
            logger.warning(
                "%s cannot be read (%s); a run resumed from the checkpoint cuts no line off",
                *(self.path, describe(error)),
            )
            return None
        size, crc = self._measured
        return {"size": size, "crc32": crc}

    def cut_back(self, state: Mapping[str, Any], logger: logging.Logger) -> bool:
        """Remove the lines written after a checkpoint; return whether the file goes on.

        A file goes on if it has any content, or was empty at the time of the checkpoint.

        A file with another beginning than at the time of the checkpoint is left unchanged, with a
        warning.

        Args:
            state: Result of :meth:`state` from the checkpoint.
            logger: Warns if the file cannot be cut back.
        """
        size, crc, has_more = 0, 0, False
        with contextlib.suppress(OSError), _opened(self.path) as file:
            size, crc = _measure(file, 0, 0, end=state["size"])
            has_more = bool(file.read(1))
        if (size, crc) == (state["size"], state["crc32"]):
            self._measured = size, crc
            if has_more:
                self._truncate(size, logger)
        elif size or has_more:
            logger.warning(
                "%s is not what it was when the checkpoint was written: it is not cut back",
                self.path,
            )
        return bool(size or has_more) or not state["size"]

    def _truncate(self, size: int, logger: logging.Logger) -> None:
        try:
            if self._is_local:
                with os.fdopen(_open(self.path, os.O_RDWR), "r+b") as file:
                    file.truncate(size)
            else:
                fs, target = filesystem(self.path)
                fs.pipe_file(target, fs.cat_file(target, 0, size))
        except OSError as error:
            logger.warning("%s cannot be cut back: %s", self.path, error)


def claim_timestamp(runner: Runner, names: Collection[str] = ()) -> None:
    """Set the timestamp in the names of the run's files.

    The file ``.{timestamp}.run`` in the work dir lists the ids of the runs with the timestamp. So a
    resumed run finds its earlier timestamp without trust in a file name from the checkpoint. A new
    run gets a number if another run began in the same second; a user's own timestamp stays.

    Args:
        runner: The runner.
        names: Names of files in the checkpoint, to choose among several timestamps of the run.
    """
    folder, run = runner.work_dir, runner.run_id.encode()
    stem, number = runner.timestamp, 1
    if stem == runner.unclaimed_timestamp:
        earlier = [s for s in _timestamps(folder) if run in read(_list(folder, s)).split()]
        earlier.sort(key=lambda stamp: f"{stamp}.log.json" in names)
        while not earlier and not create(_list(folder, runner.timestamp), run + b"\n"):
            number += 1
            runner.timestamp = f"{stem}_{number}"
        runner.timestamp = [runner.timestamp, *earlier][-1]
        runner.unclaimed_timestamp = ""
        return
    path = _list(folder, stem)
    with contextlib.suppress(OSError):  # the first line of the log will warn
        if run not in read(path).split():
            append(path, run + b"\n", is_local(path))


def _list(folder: str, timestamp: str) -> str:
    return join(folder, f".{timestamp}.run")


def _timestamps(folder: str) -> list[str]:
    """Return the timestamps of all runs in a local or remote folder."""
    try:
        if is_local(folder):
            names = os.listdir(folder)
        else:
            system, target = filesystem(folder)
            names = [posixpath.basename(path) for path in system.ls(target, detail=False)]
    except OSError:
        return []
    return [name[1:-4] for name in sorted(names) if name.startswith(".") and name.endswith(".run")]


def files_of_run(runner: Runner, suffix: str | tuple[str, ...]) -> Iterator[str]:
    """Yield the run's files with a ``suffix``, as paths relative to ``runner.work_dir``.

    Hidden files and folders and trackers' folders are left out. If the work dir is the current
    folder, which has other files too, only names with the run's timestamp as prefix are yielded.
    """
    work_dir = runner.work_dir
    if not is_local(work_dir) or not os.path.isdir(work_dir):
        return
    prefix = runner.timestamp if os.path.samefile(work_dir, os.curdir) else ""
    for folder, inner, names in os.walk(work_dir):
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _TRACKERS)
        for name in sorted(names):
            path = os.path.join(folder, name)
            is_wanted = name.endswith(suffix) and name.startswith(prefix)
            if is_wanted and not name.startswith(".") and os.path.isfile(path):
                yield os.path.relpath(path, work_dir)


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
    work_dir = runner.work_dir
    target = join(out_dir, os.path.basename(work_dir.rstrip("/" + os.sep)))
    try:
        for name in files_of_run(runner, suffix):
            local, remote = join(work_dir, name), join(target, name)
            if os.path.abspath(local).startswith(os.path.join(os.path.abspath(target), "")):
                continue  # copies in the work dir, of this run and of earlier ones
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
    raise TypeError(f"out_suffix must be a string or a tuple of strings, got {shown(out_suffix)}")
