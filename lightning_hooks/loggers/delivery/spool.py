"""``Spool``: a file with the records of a run, which is the queue to its backend."""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import json
import os
import re
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from lightning_hooks.loggers.delivery.record import Record, from_line, seal, to_line, unseal
from lightning_hooks.loggers.run_files import append
from lightning_hooks.storage.files import delete, is_local, join
from lightning_hooks.storage.locks import locked
from lightning_hooks.utils.regular_files import regular

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "Spool",
    "StoredSpool",
    "count_records",
    "create",
    "discard",
    "exclusive",
    "is_run_id",
    "is_shared",
    "lines_of",
    "read_head",
    "shared_folder",
    "spool_path",
    "spools_in",
    "write_ack",
]

_MAX_IN_MEMORY = 10_000  # records, when the disk is full: a megabyte or two


class Spool:
    """A file of JSON lines, appended by one thread and read by another.

    The first line describes the run, each further line is a :class:`Record`, and every line has a
    checksum. A line is passed to the operating system in one call and survives a kill of the
    process, but is not forced to the disk: a power failure may cost the last seconds. Beside the
    file, ``.ack`` holds the position of the first undelivered record, and ``.refused.jsonl`` is a
    spool of refused records. Only the user can read the files.

    On a full disk up to 10 000 records are kept in memory; then the oldest are dropped.

    Args:
        path: The file, created with its folder. If the file exists, the name gets a number.
        head: The description of the run.
    """

    def __init__(self, path: str, head: Mapping[str, Any]) -> None:
        self.error: Exception | None = None
        """The error that ended the writing of the file, if any."""
        self.dropped = 0
        """The number of lost records."""
        self.seq = 0
        """The number of the next record."""
        self.is_locked = False
        """Whether the file is locked; not on a file system without locks."""
        self._file: IO[bytes] | None = None
        self._reader: IO[bytes] | None = None
        self._lock = contextlib.ExitStack()
        self._first = self._start = self._end = self._read_to = 0
        self._memory: deque[Record] = deque()
        self._in_flight: list[tuple[Record, int]] = []  # with their ends in the file
        self._delivered: deque[tuple[float, int]] = deque()  # times, with ends in the file
        self._aside: set[int] = set()  # the numbers of refused records
        self._appending = threading.Lock()  # a thread may write checkpoints
        self._head = seal(json.dumps({"run": dict(head)}, default=str))
        try:
            os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
            self.path, self._file = _open_new(path)
            # a search for unsent records holds the lock for a moment
            self.is_locked = bool(self._lock.enter_context(locked(self.path, os.O_RDWR)))
            delete(f"{self.path}.ack")  # of a removed file
            self._reader = open(self.path, "rb", buffering=0)  # noqa: SIM115 - until close()
        except OSError as error:
            self.path, self.error = path, error
            return
        self._write(self._head)
        self._first = self._start = self._read_to = self._end

    @property
    def refused_path(self) -> str:
        """The spool of refused records, if there are any."""
        return f"{self.path.removesuffix('.jsonl')}.refused.jsonl"

    # -- called by the logging thread ------------------------------------------------------

    def append(self, at: float, step: int, **values: Any) -> None:
        """Append a record, to the memory if the disk is full.

        Args:
            at: The time of the record, in seconds since the epoch.
            step: The iteration.
            values: Other fields of the record.
        """
        with self._appending:
            record = Record(self.seq, at, step, **values)
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
        """Return up to ``most`` records, beginning with unacknowledged records of earlier calls."""
        end = self._end  # later records are for the next call
        if self._read_to < end and self._reader is not None:
            for line, after in lines_of(self._reader, self._read_to, end):
                self._read_to = after
                with contextlib.suppress(ValueError):  # damaged on the disk: not sent
                    record = from_line(line, os.path.dirname(self.path))
                    self._in_flight.append((record, after))
                if len(self._in_flight) == most:
                    break
        # records in memory come after the file's records
        while self._memory and self._read_to == self._end and len(self._in_flight) < most:
            with contextlib.suppress(IndexError):  # the other thread may drop one
                self._in_flight.append((self._memory.popleft(), self._end))
        return [record for record, _ in self._in_flight]

    def acknowledge(self, count: int, run_id: str | None, lag: float = 0.0) -> None:
        """Mark the first ``count`` records returned by ``take`` as done.

        Args:
            count: The number of records; 0 stores the id and the end of earlier lags.
            run_id: The backend's id of the run.
            lag: Seconds until the file counts a record as delivered.
        """
        now = time.monotonic()
        if count:
            self._delivered.append((now, self._in_flight[count - 1][1]))
        while self._delivered and self._delivered[0][0] <= now - lag:
            self._start = self._delivered.popleft()[1]
        done = [record for record, _ in self._in_flight[:count]]
        del self._in_flight[:count]
        if self._file is not None:
            try:
                write_ack(self.path, self._start, run_id)
            except OSError:  # the records are sent again
                return
        for record in done:
            if record.seq not in self._aside:
                for upload in record.uploads:
                    upload.discard()

    def refuse(self, record: Record) -> None:
        """Set a refused record aside."""
        self._aside.add(record.seq)
        with contextlib.suppress(OSError), create(self.refused_path) as file:
            file.write(self._head)
        with contextlib.suppress(OSError):
            append(self.refused_path, to_line(record), local=True)

    def take_back(self) -> None:
        """Count refused records as unsent: the backend refuses everything."""
        self._start = self._first
        self._delivered.clear()
        self._aside.clear()
        delete(self.refused_path)

    # -- called when the sending has ended --------------------------------------------------

    def save_memory(self) -> None:
        """Write the records in memory to the file, if the disk has space again."""
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
        """Close the file; remove the file unless ``keep``."""
        made = self._file is not None
        self._lock.close()
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        if made and not keep:
            discard(self.path)


def _open_new(path: str) -> tuple[str, IO[bytes]]:
    """Open a new file; runs of the same second get different files."""
    stem, extension = os.path.splitext(path)
    for number in itertools.count(1):
        name = path if number == 1 else f"{stem}-{number}{extension}"
        with contextlib.suppress(FileExistsError):
            return name, create(name)
    raise AssertionError  # count() has no end


# -- the files of a spool, whose content is not trusted -------------------------------------


_BLOCK = 1 << 20


def discard(path: str) -> None:
    """Remove a spool, and the folder if empty."""
    delete(path, f"{path}.ack")
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def write_ack(path: str, offset: int, run_id: str | None) -> None:
    """Store the position of the first undelivered record, and the backend's id of the run."""
    temporary = f"{path}.ack.tmp"
    delete(temporary)
    try:
        with create(temporary) as file:
            file.write(seal(json.dumps({"offset": offset, "run": run_id})))
        os.replace(temporary, f"{path}.ack")
    except OSError:
        delete(temporary)
        raise


def read_head(path: str) -> tuple[dict[str, Any], int]:
    """Return the description of a spool's run, and the position of the first undelivered record.

    An impossible ``.ack`` is ignored: records sent twice are better than lost records. In the
    description ``run`` is the backend's id of the run or, without an id, the run's key.

    Raises:
        ValueError: if the file is no spool.
    """
    first, start = next(_read_lines(path), (b"", 0))
    head = (unseal(first) or {}).get("run")
    if not isinstance(head, dict):
        raise ValueError(f"{path} is not the spool of a run")
    state: dict[str, Any] = {}
    with contextlib.suppress(OSError), open(f"{path}.ack", "rb", opener=regular) as file:
        state = unseal(file.read(_BLOCK)) or {}
    offset = state.get("offset")
    run_ids = (each for each in (state.get("run"), head.get("key")) if is_run_id(each))
    head = {**head, "run": next(run_ids, None)}
    if type(offset) is int and start <= offset and _ends_line(path, offset):
        return head, offset
    return head, start


def is_run_id(value: Any) -> bool:
    """Whether a value from a file may be the id of a run: letters, digits, ``_`` and ``-``."""
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,128}", value) is not None


def count_records(path: str, *, rest: bool = False) -> int:
    """Return the number of a spool's records, damaged records included.

    Args:
        path: The file.
        rest: Whether to count only undelivered records.

    Raises:
        ValueError: if the file is no spool.
    """
    _, offset = read_head(path)
    lines = _read_lines(path, offset if rest else 0)
    return sum(not line.startswith((b'{"run"', b'{"end"')) for line, _ in lines)


class StoredSpool:
    """The records of a spool, read from the file one by one.

    Damaged lines, and a last line torn by a kill, are left out.

    Args:
        path: The file.
        rest: Whether to read only undelivered records.

    Raises:
        ValueError: if the file is no spool.
    """

    def __init__(self, path: str, *, rest: bool = False) -> None:
        self.head, offset = read_head(path)
        """The description of the run."""
        self._path, self._size = path, os.path.getsize(path)
        self._start = self._end = offset if rest else 0
        self._is_fit = self.head.get("evaluation") is not True  # which leaves the run's outcome
        self._outcome: dict[str, Any] | None = None  # the end of the run, None after a kill
        self.damaged = 0
        """The number of lines that are no records."""
        self._count = sum(1 for _ in self)

    def __iter__(self) -> Iterator[Record]:
        self.damaged = 0
        with open(self._path, "rb", buffering=0, opener=regular) as file:
            for line, end in lines_of(file, self._start, self._size):
                self._end = end
                fields = unseal(line) or {}
                if isinstance(fields.get("end"), dict):
                    self._outcome = fields["end"]
                elif "run" not in fields:
                    try:
                        record = from_line(line, os.path.dirname(self._path))
                    except ValueError:
                        self.damaged += 1
                    else:
                        yield record

    def __len__(self) -> int:
        return self._count

    @property
    def killed(self) -> bool:
        """Whether the process of the run was killed."""
        return self._is_fit and self._outcome is None

    @property
    def failed(self) -> bool:
        """Whether the run has failed, or was killed."""
        return self._is_fit if self._outcome is None else self._outcome.get("failed") is not False

    def discard(self) -> None:
        """Remove the file after the delivery; with damaged lines it stays, as delivered."""
        if self.damaged:
            write_ack(self._path, self._end, self.head["run"])
        else:
            discard(self._path)


def _read_lines(path: str, start: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines of a file from a position on, with the position after each."""
    with open(path, "rb", buffering=0, opener=regular) as file:
        yield from lines_of(file, start, os.path.getsize(path))


def _ends_line(path: str, offset: int) -> bool:
    with open(path, "rb", opener=regular) as file:
        if offset > os.path.getsize(path):
            return False
        file.seek(offset - 1)
        return file.read(1) == b"\n"


def lines_of(file: IO[bytes], start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines between two positions, with the position after each."""
    left: list[bytes] = []  # the parts of a line that goes on in the next block
    at = start  # of the next block
    while at < end:
        file.seek(at)
        block = file.read(min(_BLOCK, end - at))
        if not block:
            return
        at += len(block)
        *complete, rest = block.split(b"\n")
        if complete:
            complete[0] = b"".join([*left, complete[0]])
            left.clear()
        left.append(rest)
        after = at - len(rest) - sum(len(line) + 1 for line in complete)
        for line in complete:
            after += len(line) + 1
            yield line, after


def create(path: str) -> IO[bytes]:
    """Create a file readable by the user alone; an existing file or link is an error."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return open(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600), "wb", buffering=0)


@contextlib.contextmanager
def exclusive(path: str) -> Iterator[None]:
    """Lock a spool.

    Raises:
        BlockingIOError: while the run or another replay uses the spool.
    """
    with locked(path, wait=False) as free:
        if free is False:
            raise BlockingIOError(
                f"{path} is in use: its run goes on, or another process sends it; "
                "a copy of its records can go elsewhere meanwhile (--everything)"
            )
        yield


def shared_folder() -> str:
    """Return the folder for spools of runs without a local work dir, shared by the user's programs.

    Only the user can write there. If another user has taken the name, the folder is a new one.
    """
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = os.path.join(tempfile.gettempdir(), f"lightning_hooks-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    is_ours = stat.S_ISDIR(status.st_mode) and (not user or status.st_uid == user)
    if is_ours and not (user and status.st_mode & 0o077):
        return folder
    return tempfile.mkdtemp(prefix="lightning_hooks-")


def is_shared(folder: str) -> bool:
    """Whether a folder, or the folder above, is the shared folder."""
    here = os.path.abspath(folder)
    return shared_folder() in (here, os.path.dirname(here))


def spool_path(runner: Runner, backend: str) -> str:
    """Return the path of a run's spool on the local machine."""
    work_dir = runner.work_dir
    if not is_local(work_dir):  # nothing can be appended there
        work_dir = shared_folder()
    return join(work_dir, "spool", f"{runner.timestamp}-{backend}.jsonl")


def spools_in(folder: str, backend: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield a backend's spools: path, description, and whether the run has ended.

    The spool of an ended run is locked meanwhile.
    """
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.jsonl"))):
        with contextlib.suppress(OSError, ValueError), locked(path, wait=False) as is_free:
            head, _ = read_head(path)
            if head.get("writer") == backend:
                yield path, head, is_free is not False
