"""``Writer``: the interface of a run in a backend."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.delivery.upload import Upload

__all__ = ["PERMANENT", "REFUSALS", "Writer", "fail", "one_at_a_time"]

PERMANENT: tuple[type[Exception], ...] = (
    AttributeError,
    ImportError,
    IsADirectoryError,
    KeyError,
    NotADirectoryError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""Errors beyond repair by another attempt."""

REFUSALS = (400, 413, 414, 415, 422)
"""HTTP statuses of a refused input; errors of a proxy or a token may pass."""


class Writer:
    """A run in a backend. Override ``connect``, ``add``, and methods for other kinds of values.

    A backend that takes several values at once overrides ``log`` or ``write`` instead of ``add``.

    A thread beside the training calls all methods, in the order of the records. After an exception
    the call is repeated, unless :meth:`is_permanent` returns True for the exception.

    Args:
        run: The client's run.
        owned: Whether the writer has opened the run and must end the run.
    """

    name: str
    """The name of the backend in spools and for replays."""

    note: str = ""
    """A message for the user about the run or about stored values."""

    takes: Collection[str] = ("images",)
    """Supported kinds among ``KINDS`` and checkpoints."""

    batch: int = 1
    """The largest number of records for a call of ``write``."""

    chunk: int = 256
    """The largest number of records sent twice after a kill of the process; small for a backend
    that stores duplicates."""

    imports_ipython: bool = False
    """Whether the client imports IPython, if installed."""

    slow_start: float = 0.0
    """Seconds until the first record, for which the end of a short run waits."""

    lag: float = 0.0
    """Seconds until the client has stored an accepted value. After a kill of the process younger
    values, and the last value, are sent again."""

    run_options: Mapping[str, str] = {}
    """The attributes of an open run with options of ``lightning-hooks replay``, by option."""

    replayed: Mapping[str, Any] = {}
    """Arguments of ``connect`` for replays, beside the arguments by the table of trackers."""

    shows_state: bool = False
    """Whether the backend shows a run as running until the run is ended."""

    killed: bool = False
    """Whether the process of a replayed run was killed."""

    stored: Mapping[str, Collection[int]] = {}
    """Steps stored in a continued run, by the backend's names; stored steps are not sent again."""

    _done = (-1, 0)  # the record's number, and the number of successful calls

    def __init__(self, run: Any = None, *, owned: bool = True) -> None:
        self.run = run
        self._owned = owned

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Writer:
        """Open a run; subclasses have ``connect(*, run=None, ...)``.

        Args:
            args: Nothing.
            kwargs: ``run``, an open run to use and leave open, and arguments of the client.
        """
        raise NotImplementedError(f"{cls.__name__} must define connect(*, run=None, ...)")

    @classmethod
    def options(cls, run: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of ``lightning-hooks replay`` in addition to the arguments by the table.

        Args:
            run: The open run in use, if any.
            arguments: Other arguments of ``connect``.
        """
        if run is None:
            return {}
        return {option: getattr(run, name, None) for option, name in cls.run_options.items()}

    @classmethod
    def reopen(cls, *args: Any, **arguments: Any) -> Writer:
        """Open the run of a replay.

        Args:
            args: Nothing.
            arguments: ``replayed``, and the arguments for the options by the table of trackers.
        """
        return cls.connect(**arguments)

    def write(self, records: Sequence[Record]) -> None:
        """Store records; after an exception the whole batch is repeated."""
        for record in records:
            if record.params:
                self.params(record.params)
            if record.points:
                self.log(record)
            self.checkpoints(record)

    def checkpoints(self, record: Record) -> None:
        """Send and delete checkpoints; a second attempt may find parts done."""
        for name, upload in record.checkpoints.items():
            if upload is None:
                self.delete_checkpoint(name)
            else:
                self.send_checkpoint(name, upload, record.step)

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Store a checkpoint with aliases; return when the backend has the file."""
        raise NotImplementedError(f"{type(self).__name__} must define send_checkpoint")

    def delete_checkpoint(self, name: str) -> None:
        """Delete a checkpoint, if the backend has the name."""
        raise NotImplementedError(f"{type(self).__name__} must define delete_checkpoint")

    def log(self, record: Record) -> None:
        """Store the values of a step; steps do not decrease within a run.

        Successful calls are counted, so a second attempt stores no value twice.
        """
        seq, done = self._done
        for index, call in enumerate(self.calls(record)):
            if index >= done or seq != record.seq:
                call()
                self._done = (record.seq, index + 1)

    def calls(self, record: Record) -> Iterator[Callable[[], object]]:
        """Yield the calls that store the values of a step."""
        yield from (partial(self.add, name, value, record) for name, value in record.points)

    def add(self, name: str, value: Any, record: Record) -> None:
        """Store a value of a record: a number, a text or a sample."""
        raise NotImplementedError(f"{type(self).__name__} must define add(name, value, record)")

    def stored_name(self, name: str) -> str:
        """Return the backend's name for a number."""
        return name

    def keep_stored(self, stored: Mapping[str, Collection[int]], after: int) -> None:
        """Keep a continued run's points after the checkpoint, and skip new values for the steps.

        Args:
            stored: Stored steps, by the backend's names.
            after: The last step of the checkpoint.
        """
        self.stored = stored
        last = max((max(steps, default=0) for steps in stored.values()), default=0)
        if last > after + 1:  # after + 1: the validation at the end of the epoch
            self.note = (
                f"{self.name} has points of this run up to step {last}, from a process that went "
                f"beyond the checkpoint at step {after}: they stay, and new values for their steps "
                'are left out (resume="never" begins a run of its own)'
            )

    def new_points(self, record: Record) -> Record:
        """Return a record without numbers stored before."""
        if not self.stored:
            return record
        scalars = {
            name: value
            for name, value in record.scalars.items()
            if record.step not in self.stored.get(self.stored_name(name), ())
        }
        return dataclasses.replace(record, scalars=scalars)

    def left_out(self, record: Record) -> list[str]:
        """Return the kinds of a record's samples and files without support in the backend."""
        kinds = (*KINDS, "checkpoints")
        return [kind for kind in kinds if getattr(record, kind) and kind not in self.takes]

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters of the run."""

    def flush(self) -> None:
        """Make stored values survive a kill of the process."""

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files of the run: pairs of a local path and a name in the backend."""

    def close(self, failed: bool = False) -> None:
        """End the run in the backend, if the writer has opened it."""
        if self._owned:
            self.end(failed)

    def end(self, failed: bool) -> None:
        """End the run in the backend."""

    def run_id(self) -> str | None:
        """Return the backend's id of the run, None if the run has none."""
        return None

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether another attempt would raise the same error: a bad name, a refused value."""
        is_long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        status = getattr(getattr(error, "response", None), "status_code", None)
        return is_long or status in REFUSALS or isinstance(error, PERMANENT)

    @staticmethod
    def on_abandoned() -> None:
        """Keep an unresponsive client from blocking the end of the process."""


def fail(error: Exception) -> Writer:
    """Raise an error from the preparation of the connection."""
    raise error


_LOCKS: dict[str, threading.Lock] = {}  # of the clients' global states, by backend


PATIENCE = 10.0
"""Seconds to wait for the lock of a backend."""


@contextlib.contextmanager
def one_at_a_time(backend: str) -> Iterator[None]:
    """Hold a backend's lock in the block; go on without it if a client that hangs keeps it."""
    lock = _LOCKS.setdefault(backend, threading.Lock())
    is_held = lock.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        if is_held:
            lock.release()
