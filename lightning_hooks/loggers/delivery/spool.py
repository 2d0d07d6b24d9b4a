"""``Spool``: a file with the records of a run, which is the queue to its backend."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import IO, Any

from lightning_hooks.loggers.delivery.lines import seal
from lightning_hooks.loggers.delivery.record import Record, from_line, to_line
from lightning_hooks.loggers.delivery.spool_file import create, discard, lines_of, write_ack
from lightning_hooks.storage.files import locked

__all__ = ["Spool"]

_MAX_IN_MEMORY = 10_000  # records, when the disk is full: a megabyte or two


class Spool:
    """A file of JSON lines that one thread appends and another one reads.

    The first line describes the run, each further one is a :class:`Record`; each has a checksum. A
    line is passed to the operating system in one call, and survives a kill of the process. It is
    not forced to the disk: a power failure may cost the last seconds. Beside the file, ``.ack``
    holds the position up to which the backend took it, and ``.refused.jsonl`` is a spool of the
    records that the backend did not want. Only the user can read these files.

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
        self.refused_path = f"{path.removesuffix('.jsonl')}.refused.jsonl"
        """The spool of refused records, if there are any."""
        self.seq = 0
        """The number of the next record."""
        self._file: IO[bytes] | None = None
        self._reader: IO[bytes] | None = None
        self._lock = contextlib.ExitStack()
        self._first = self._start = self._end = self._read_to = 0
        self._memory: deque[Record] = deque()
        self._in_flight: list[tuple[Record, int]] = []  # with their ends in the file
        self._aside: set[int] = set()  # the numbers of refused records
        self._appending = threading.Lock()  # a thread may write checkpoints
        self._head = seal(json.dumps({"run": dict(head)}, default=str))
        try:
            os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
            self.path, self._file = _open_new(path)
            self.refused_path = f"{self.path.removesuffix('.jsonl')}.refused.jsonl"
            # whoever looks for unsent records holds the lock for a moment
            self._lock.enter_context(locked(self.path, os.O_RDWR))
            with contextlib.suppress(FileNotFoundError):  # of a file that is no more
                os.unlink(f"{self.path}.ack")
            self._reader = open(self.path, "rb", buffering=0)  # noqa: SIM115 - until close()
        except OSError as error:
            self.path, self.error = path, error
            return
        self._write(self._head)
        self._first = self._start = self._read_to = self._end

    # -- called by the logging thread ------------------------------------------------------

    def append(self, time: float, step: int, **values: Any) -> None:
        """Append a record, to the memory if the disk is full."""
        with self._appending:
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
            self._write(seal(json.dumps({"end": {"failed": failed}})))

    # -- called by the sending thread ------------------------------------------------------

    def take(self, most: int) -> list[Record]:
        """Return up to ``most`` records, those first that were taken and not acknowledged."""
        end = self._end  # later records are for the next call
        if self._read_to < end and self._reader is not None:
            for line, after in lines_of(self._reader, self._read_to, end):
                self._read_to = after
                with contextlib.suppress(ValueError):  # damaged on the disk: it is not sent
                    record = from_line(line, os.path.dirname(self.path))
                    self._in_flight.append((record, after))
                if len(self._in_flight) == most:
                    break
        # there is nothing in memory before the file has ended
        while self._memory and self._read_to == self._end and len(self._in_flight) < most:
            with contextlib.suppress(IndexError):  # the other thread may drop one
                self._in_flight.append((self._memory.popleft(), self._end))
        return [record for record, _ in self._in_flight]

    def acknowledge(self, count: int, run_id: str | None) -> None:
        """Store that the first ``count`` of the records that ``take`` returned need no sending.

        Args:
            count: The number of records; 0 stores the id alone.
            run_id: The backend's id of the run.
        """
        if count:
            self._start = self._in_flight[count - 1][1]
        done = [record for record, _ in self._in_flight[:count]]
        del self._in_flight[:count]
        if self._file is not None:
            try:
                write_ack(self.path, self._start, run_id)
            except OSError:  # then these are sent again
                return
        for record in done:
            if record.seq not in self._aside:
                for upload in record.uploads:
                    upload.discard()

    def refuse(self, record: Record) -> None:
        """Set a record aside that the backend does not want."""
        self._aside.add(record.seq)
        with contextlib.suppress(OSError), create(self.refused_path) as file:
            file.write(self._head)
        with contextlib.suppress(OSError), open(self.refused_path, "ab", buffering=0) as file:
            file.write(to_line(record))

    def take_back(self) -> None:
        """Count the refused records as not sent: the backend wants none at all."""
        self._start = self._first
        self._aside.clear()
        with contextlib.suppress(OSError):
            os.unlink(self.refused_path)

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
        self._lock.close()
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        if made and not keep:
            discard(self.path)


def _open_new(path: str) -> tuple[str, IO[bytes]]:
    """Open a file that did not exist; runs of the same second do not share one."""
    stem, extension = os.path.splitext(path)
    for number in itertools.count(1):
        name = path if number == 1 else f"{stem}-{number}{extension}"
        with contextlib.suppress(FileExistsError):
            return name, create(name)
    raise AssertionError  # count() has no end
