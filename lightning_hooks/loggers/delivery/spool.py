"""``Spool``: the records of a run in a file, which is the queue to its backend."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, Any

from lightning_hooks.loggers.delivery.record import Record, from_line, to_line
from lightning_hooks.storage.files import acquire, locked, release

__all__ = ["Spool", "held", "read_lines", "read_spool"]

_KEPT = 10_000  # records kept in memory when the disk takes no more: a megabyte or two
_BLOCK = 1 << 20


class Spool:
    """Lines of JSON that are appended by one thread and read by another.

    The first line says what the run is, each further one is a :class:`Record`. A line is handed
    to the operating system in one call, and is there when the process is killed. It is not
    forced to the disk: a power failure may cost the last seconds. Beside the file, ``.ack`` says
    up to where the backend has taken it.

    On a full disk records are kept in memory, 10 000 at most: then the oldest go.

    Args:
        path: The file; it and its folder are made. If it exists, another number is taken.
        head: What the run is.
    """

    def __init__(self, path: str, head: Mapping[str, Any]) -> None:
        self.error: Exception | None = None
        """Why the file is not written any more."""
        self.dropped = 0
        """How many records are lost."""
        self.seq = 0
        """The number of the next record."""
        self._file: IO[bytes] | None = None
        self._reader: IO[bytes] | None = None
        self._end = self._read_to = 0
        self._memory: deque[Record] = deque()
        self._taken: list[tuple[Record, int]] = []  # with where each ends in the file
        line = json.dumps({"run": dict(head)}, default=str).encode() + b"\n"
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self.path, self._file = _open_new(path)
            acquire(self._file)
            self._reader = open(self.path, "rb", buffering=0)  # noqa: SIM115 - until close()
        except OSError as error:
            self.path, self.error = path, error
            return
        self._write(line)
        self._read_to = self._end

    # -- the thread that logs --------------------------------------------------------------

    def append(self, time: float, step: int, **values: Any) -> None:
        """Append a record; it never raises for want of space."""
        record = Record(self.seq, time, step, **values)
        self.seq += 1
        if self.error is None and self._write(to_line(record)):
            return
        if len(self._memory) >= _KEPT:
            self._memory.popleft()
            self.dropped += 1
        self._memory.append(record)

    def _write(self, line: bytes) -> bool:
        if self._file is None:
            return False
        try:
            written = self._file.write(line)
            if written == len(line):
                self._end += written
                return True
            self._file.truncate(self._end)  # half a line is none
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except (OSError, ValueError) as error:  # ValueError: closed
            self.error = error
            return False

    def end(self, failed: bool) -> None:
        """Append how the run has ended."""
        if self.error is None:
            self._write(json.dumps({"end": {"failed": failed}}).encode() + b"\n")

    # -- the thread that sends -------------------------------------------------------------

    def take(self, most: int) -> list[Record]:
        """Return the next records; those taken before are to be acknowledged first."""
        end = self._end  # what is written later is for the next time
        if self._read_to < end and self._reader is not None:
            for line, after in _lines(self._reader, self._read_to, end):
                self._read_to = after
                self._taken.append((from_line(line), after))
                if len(self._taken) == most:
                    break
        # there is nothing in memory before the file has ended
        while self._memory and self._read_to == self._end and len(self._taken) < most:
            with contextlib.suppress(IndexError):  # the other thread may drop one
                self._taken.append((self._memory.popleft(), self._end))
        return [record for record, _ in self._taken]

    def acknowledge(self, count: int, resume: Mapping[str, Any]) -> None:
        """Note that the backend has the first ``count`` of those taken.

        Args:
            count: How many.
            resume: What opens the same run again.
        """
        if count == 0:
            return
        state = {"offset": self._taken[count - 1][1], "resume": dict(resume)}
        del self._taken[:count]
        if self._file is None:
            return
        temporary = f"{self.path}.ack.tmp"
        with contextlib.suppress(OSError):  # then some are sent again
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.replace(temporary, f"{self.path}.ack")

    # -- afterwards, when nobody sends -----------------------------------------------------

    def save_memory(self) -> None:
        """Write what is in memory after all, if there is space again."""
        left = [record for record, after in self._taken if after >= self._end]
        self._memory.extendleft(reversed(left))
        self._taken.clear()
        if self._file is None:
            return
        failed, self.error = self.error, None
        while self._memory and self._write(to_line(self._memory[0])):
            self._memory.popleft()
        if self.dropped:
            self.error = failed

    def close(self, keep: bool) -> None:
        """Close the file, and remove it if nothing in it is wanted."""
        made = self._file is not None
        if self._file is not None:
            release(self._file)
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        if keep or not made:
            return
        for path in (self.path, f"{self.path}.ack"):
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):  # others' spools may be there
            os.rmdir(os.path.dirname(self.path))


def read_spool(path: str, *, rest: bool = False) -> tuple[dict[str, Any], list[Record], bool]:
    """Return what a spool says of its run, its records, and whether the run has failed.

    A last line that was torn by a kill is left out.

    Args:
        path: The file.
        rest: Whether only what the backend has not acknowledged is wanted. What opens the run
            again is in the head then, as ``resume``.

    Raises:
        ValueError: if the file is no spool.
    """
    lines = read_lines(path)
    try:
        first, start = next(lines)
        head = json.loads(first)["run"]
    except (StopIteration, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not the spool of a run") from None
    state = _acknowledged(path) if rest else {}
    head["resume"] = state.get("resume", {})
    offset = max(int(state.get("offset", start)), start)
    records, failed = [], True
    for line, after in lines:
        if line.startswith(b'{"end"'):
            failed = bool(json.loads(line)["end"]["failed"])
        elif after > offset:
            records.append(from_line(line))
    return head, records, failed


def read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yield the whole lines of a file, each with the position after it."""
    with open(path, "rb", buffering=0) as file:
        yield from _lines(file, 0, os.path.getsize(path))


def _lines(file: IO[bytes], start: int, end: int) -> Iterator[tuple[bytes, int]]:
    left = b""
    at = start  # of the next block
    while at < end:
        file.seek(at)
        block = file.read(min(_BLOCK, end - at))
        if not block:
            return
        at += len(block)
        *whole, left = (left + block).split(b"\n")
        after = at - len(left) - sum(len(line) + 1 for line in whole)
        for line in whole:
            after += len(line) + 1
            yield line, after


def _acknowledged(path: str) -> dict[str, Any]:
    try:
        with open(f"{path}.ack", encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _open_new(path: str) -> tuple[str, IO[bytes]]:
    """Open a file that was not there; runs of the same second do not share one."""
    stem, extension = os.path.splitext(path)
    for number in itertools.count(1):
        name = path if number == 1 else f"{stem}-{number}{extension}"
        with contextlib.suppress(FileExistsError):
            return name, open(name, "xb", buffering=0)
    raise AssertionError  # count() has no end


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Hold a spool for a while.

    Raises:
        BlockingIOError: if the run that writes it does, or who sends it afterwards.
    """
    with locked(path, wait=False) as free:
        if free is False:
            raise BlockingIOError(
                f"{path} is in use: its run goes on, or somebody else sends it; "
                "a copy of what is in it can go to another backend meanwhile"
            )
        yield
