"""``Spool``: a file with the records of a run, which is the queue to its backend."""

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

__all__ = ["Spool", "discard", "exclusive", "read_spool"]

_MAX_IN_MEMORY = 10_000  # records, when the disk is full: a megabyte or two
_BLOCK = 1 << 20


class Spool:
    """A file of JSON lines that one thread appends and another one reads.

    The first line describes the run, each further one is a :class:`Record`. A line is passed to the
    operating system in one call, and survives a kill of the process. It is not forced to the disk:
    a power failure may cost the last seconds. Beside the file, ``.ack`` holds the position up to
    which the backend took it.

    On a full disk up to 10 000 records are kept in memory; then the oldest are dropped.

    Args:
        path: The file; it and its folder are created. If it exists, its name gets a number.
        head: The description of the run.
    """

    def __init__(self, path: str, head: Mapping[str, Any]) -> None:
        self.error: Exception | None = None
        """The error that ended the writing of the file, if any."""
        self.dropped = 0
        """The number of lost records."""
        self.seq = 0
        """The number of the next record."""
        self._file: IO[bytes] | None = None
        self._reader: IO[bytes] | None = None
        self._end = self._read_to = 0
        self._memory: deque[Record] = deque()
        self._in_flight: list[tuple[Record, int]] = []  # with their ends in the file
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

    # -- called by the logging thread ------------------------------------------------------

    def append(self, time: float, step: int, **values: Any) -> None:
        """Append a record, to the memory if the disk is full."""
        record = Record(self.seq, time, step, **values)
        self.seq += 1
        if self.error is None and self._write(to_line(record)):
            return
        if len(self._memory) >= _MAX_IN_MEMORY:
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
            self._file.truncate(self._end)  # half a line is no record
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except (OSError, ValueError) as error:  # ValueError: closed
            self.error = error
            return False

    def end(self, failed: bool) -> None:
        """Append the outcome of the run."""
        if self.error is None:
            self._write(json.dumps({"end": {"failed": failed}}).encode() + b"\n")

    # -- called by the sending thread ------------------------------------------------------

    def take(self, most: int) -> list[Record]:
        """Return up to ``most`` records, those first that were taken and not acknowledged."""
        end = self._end  # later records are for the next call
        if self._read_to < end and self._reader is not None:
            for line, after in _lines(self._reader, self._read_to, end):
                self._read_to = after
                self._in_flight.append((from_line(line), after))
                if len(self._in_flight) == most:
                    break
        # there is nothing in memory before the file has ended
        while self._memory and self._read_to == self._end and len(self._in_flight) < most:
            with contextlib.suppress(IndexError):  # the other thread may drop one
                self._in_flight.append((self._memory.popleft(), self._end))
        return [record for record, _ in self._in_flight]

    def acknowledge(self, count: int, resume: Mapping[str, Any]) -> None:
        """Store that the backend has the first ``count`` of the records that ``take`` returned.

        Args:
            count: The number of records.
            resume: The arguments that open the same run again.
        """
        if count == 0:
            return
        state = {"offset": self._in_flight[count - 1][1], "resume": dict(resume)}
        del self._in_flight[:count]
        if self._file is None:
            return
        temporary = f"{self.path}.ack.tmp"
        with contextlib.suppress(OSError):  # then these are sent again
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.replace(temporary, f"{self.path}.ack")

    # -- called when the sending has ended --------------------------------------------------

    def save_memory(self) -> None:
        """Write the records in memory to the file, if there is space again."""
        unsent = [record for record, after in self._in_flight if after >= self._end]
        self._memory.extendleft(reversed(unsent))
        self._in_flight.clear()
        if self._file is None:
            return
        failed, self.error = self.error, None
        while self._memory and self._write(to_line(self._memory[0])):
            self._memory.popleft()
        if self.dropped:
            self.error = failed

    def close(self, keep: bool) -> None:
        """Close the file, and remove it unless it is kept."""
        made = self._file is not None
        if self._file is not None:
            release(self._file)
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        if made and not keep:
            discard(self.path)


def discard(path: str) -> None:
    """Remove a spool, and its folder if there is no other one."""
    for name in (path, f"{path}.ack"):
        with contextlib.suppress(OSError):
            os.unlink(name)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def read_spool(path: str, *, rest: bool = False) -> tuple[dict[str, Any], list[Record], bool]:
    """Return the description of a spool's run, its records, and whether the run has failed.

    A last line that a kill has torn is left out.

    Args:
        path: The file.
        rest: Whether to return only records that the backend has not acknowledged. The arguments
            that open the run again are in the description then, as ``resume``.

    Raises:
        ValueError: if the file is no spool.
    """
    lines = _read_lines(path)
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


def _read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines of a file, each with the position after it."""
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
        *complete, left = (left + block).split(b"\n")
        after = at - len(left) - sum(len(line) + 1 for line in complete)
        for line in complete:
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
    """Open a file that did not exist; runs of the same second do not share one."""
    stem, extension = os.path.splitext(path)
    for number in itertools.count(1):
        name = path if number == 1 else f"{stem}-{number}{extension}"
        with contextlib.suppress(FileExistsError):
            return name, open(name, "xb", buffering=0)
    raise AssertionError  # count() has no end


@contextlib.contextmanager
def exclusive(path: str) -> Iterator[None]:
    """Lock a spool.

    Raises:
        BlockingIOError: if its run goes on, or another process sends it.
    """
    with locked(path, wait=False) as free:
        if free is False:
            raise BlockingIOError(
                f"{path} is in use: its run goes on, or another process sends it; "
                "a copy of its records can go to another backend meanwhile (--to)"
            )
        yield
