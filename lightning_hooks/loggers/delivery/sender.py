"""``Sender``: a thread to bring the records of a spool to a backend. It never raises."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence

from lightning_hooks.loggers.delivery.notices import Notices
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import Spool
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.utils.secrets import describe

__all__ = ["LINGER", "Sender"]

LINGER = 5.0
"""Seconds for collecting records: waking the thread for each record would slow steps."""

_GRACE = 0.5  # seconds after the deadline
_RELEASE = 10.0  # seconds to wait for the end of an abandoned client
_RELEASES: dict[str, threading.Thread] = {}  # threads that end an abandoned client, by backend
_BACKOFF = 0.5, 30.0  # seconds before the second attempt; at most
_MAX_ATTEMPTS_FOR_FILES = 7  # half a minute: values wait behind the checkpoint
_MAX_FIRST_REFUSALS = 3  # in a row, before the backend has taken a record
_MAX_CONSECUTIVE_REFUSALS = 100


class Sender:
    """Sends the records of a spool to a backend, in order, from a separate thread.

    The thread starts the client too. A failed call is repeated after 0.5 s, 1 s, ... 30 s. A record
    with a permanent error, or with a checkpoint after half a minute of errors, is set aside, and
    the next records follow. If the backend refuses every record, sending stops and the spool keeps
    the unsent records. A hanging call is abandoned at the end: :meth:`wait` never exceeds the
    agreed time.

    Args:
        writer_class: The writer for the backend.
        connect: A function to open the writer.
        spool: The records.
        notices: Told of errors, of the next success, of refused records and of the writer's notes.
        linger: Seconds for collecting records before a send.
    """

    def __init__(
        self,
        writer_class: type[Writer],
        connect: Callable[[], Writer],
        spool: Spool,
        notices: Notices,
        *,
        linger: float = LINGER,
    ) -> None:
        self.writer: Writer | None = None
        self.error: Exception | None = None
        """The last error, None after a success."""
        self.given_up = False
        """Whether nothing is sent any more."""
        self.sent = 0
        """The number of records that the backend took."""
        self.refused = 0
        """The number of records that were set aside."""
        self.refusal: Exception | None = None
        """The error of the first refused record."""
        self._writer_class, self._connect, self._spool = writer_class, connect, spool
        self._notices, self._note = notices, ""  # the last note of the writer
        self._linger = linger
        self._has_news = threading.Event()
        self._has_progressed = threading.Event()
        self._is_closing = threading.Event()
        self._is_done = threading.Event()
        self._has_tried = threading.Event()  # to open the run
        self._abandoned = False
        self._begun, self._deadline, self._timeout = time.monotonic(), float("inf"), float("inf")
        self._failed = self._has_told_of_refusal = False
        self._refusals = 0  # in a row
        self._files: Sequence[tuple[str, str]] = ()
        name = f"lightning_hooks {writer_class.name}"
        if writer_class.imports_ipython and "matplotlib" in sys.modules:
            # each new figure reads sys.modules["IPython"], which a thread would fill meanwhile
            with contextlib.suppress(ImportError):
                importlib.import_module("IPython")
        threading.Thread(target=self._run, name=name, daemon=True).start()

    # -- called by the training thread -----------------------------------------------------

    def wake(self) -> None:
        """Announce a new record."""
        self._has_news.set()

    def close(
        self, timeout: float, *, failed: bool = False, files: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Announce the end of the records, without waiting.

        Args:
            timeout: Seconds for sending the rest and ending the run, from now or from the end of a
                slow start.
            failed: Whether the training has failed.
            files: Paths with names, sent after the last record.
        """
        self._failed, self._files, self._timeout = failed, files, timeout
        now = time.monotonic()
        is_starting = self.error is None and not self.done
        started = self._begun + self._writer_class.slow_start if is_starting else now
        self._deadline = max(now, started) + timeout
        self._is_closing.set()
        self._has_news.set()

    def wait(self) -> None:
        """Wait until all is sent and the run is ended, or time is up."""
        # the last attempt may have begun in time
        if not self._is_done.wait(max(self._deadline - time.monotonic(), 0) + _GRACE):
            self._abandoned = self.given_up = True
            self.error = self.error or TimeoutError("it does not answer")
        if self.given_up:
            end_client = functools.partial(_error_of, self._writer_class.on_abandoned)
            release = threading.Thread(target=end_client, daemon=True)
            _RELEASES[self._writer_class.name] = release
            release.start()
            release.join(_GRACE)

    def await_start(self, timeout: float) -> None:
        """Wait until the run is open or an attempt to open the run has failed, or time is up."""
        self._has_tried.wait(timeout)

    def settle(self, timeout: float) -> None:
        """Wait until all records of this moment are sent or set aside, or time is up."""
        count, end = self._spool.seq, time.monotonic() + timeout
        while not self._is_done.is_set() and (self.writer is None or self.done < count):
            if not self._has_progressed.wait(max(end - time.monotonic(), 0)):
                return
            self._has_progressed.clear()

    @property
    def done(self) -> int:
        """The number of records sent or set aside."""
        return self.sent + self.refused

    # -- the sending thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            if not self._attempt("started", self._open) or self.writer is None:
                return
            writer = self.writer
            if not self._abandoned:
                self._spool.acknowledge(0, writer.run_id())  # the run is known from now on
                self._tell(writer)
                if self._send_all(writer) and self._files:
                    self._attempt("sent its files", lambda: writer.send_files(self._files))
            # an abandoned run too: left open it would be the program's active run
            error = _error_of(functools.partial(writer.close, self._failed or self._abandoned))
            if error is not None:  # no second attempt: every record is sent
                self._give_up("closed", error)
            elif not self._abandoned:
                self._spool.acknowledge(0, writer.run_id())
        except BaseException as error:  # such as the client's own SystemExit
            self._give_up("used", RuntimeError(repr(error)))
        finally:
            self._is_done.set()
            self._has_progressed.set()

    def _open(self) -> None:
        if release := _RELEASES.get(self._writer_class.name):
            release.join(_RELEASE)  # it would end this run's client too
        try:
            self.writer = self._connect()
        finally:
            self._has_tried.set()
        self._has_progressed.set()

    def _send_all(self, writer: Writer) -> bool:
        """Send records until the announced end; return False after giving up."""
        while True:
            self._has_news.clear()
            # read before take(): earlier records are in the spool
            is_closing = self._is_closing.is_set()
            records = self._spool.take(writer.chunk)
            if records:
                count = self._send(writer, records)
                if not self._abandoned:
                    self._spool.acknowledge(count, writer.run_id(), writer.lag)
                if count < len(records):
                    return False
                if count < writer.chunk:  # a full chunk: more records are waiting
                    self._is_closing.wait(self._linger)
            elif is_closing:
                return True
            else:
                self._has_news.wait()

    def _send(self, writer: Writer, records: list[Record]) -> int:
        """Send records; return the number of records sent or set aside."""
        before = self.done
        for start in range(0, len(records), writer.batch):
            if not self._write(writer, records[start : start + writer.batch]):
                return max(self.done - before, 0) if _error_of(writer.flush) is None else 0
            self._has_progressed.set()
            self._tell(writer)
        return self.done - before if self._attempt("written to", writer.flush) else 0

    def _write(self, writer: Writer, batch: list[Record]) -> bool:
        """Write records; return False if sending stops before the last record."""
        new = [*map(writer.new_points, batch)]
        most = float("inf")
        if any(record.checkpoints for record in batch):
            most = _MAX_ATTEMPTS_FOR_FILES if len(batch) == 1 else 1
        error = self._try("written to", functools.partial(writer.write, new), most)
        if error is None:
            self.sent += len(batch)
            self._refusals = 0
            return True
        if self.given_up or self._abandoned:
            return False
        if len(batch) > 1:  # find the refused record
            return all(self._write(writer, [record]) for record in batch)
        self._refusals += 1
        if self._refusals > (_MAX_CONSECUTIVE_REFUSALS if self.sent else _MAX_FIRST_REFUSALS):
            self._give_up("written to", error)
            if not self.sent:
                self._spool.take_back()
                self.refused = 0
            return False
        self._spool.refuse(batch[0])
        self.refused += 1
        self.refusal = self.refusal or error
        return True

    def _attempt(self, action: str, call: Callable[[], object]) -> bool:
        """Call until success; return False after a permanent error or too much time."""
        error = self._try(action, call)
        if error is not None:
            self._give_up(action, error)
        return error is None

    def _try(
        self, action: str, call: Callable[[], object], most: float = float("inf")
    ) -> Exception | None:
        """Call until success; return a permanent error, or the error of the last attempt."""
        pause, longest = _BACKOFF
        error: Exception | None = TimeoutError("it is too late")
        while not self._abandoned:
            error = _error_of(call)
            if error is None:
                if self.error is not None and not self._abandoned:
                    self.error = None
                    self._notices.log(logging.INFO, f"{self._writer_class.name} is there again")
                return None
            most -= 1
            if most <= 0 or self._writer_class.is_permanent(error):
                return error
            if time.monotonic() >= self._deadline:
                self._give_up(action, error)
                return error
            if self.error is None:
                self._notices.failed(action, error, is_final=False)
                # a start that has failed is not slow
                self._deadline = min(self._deadline, time.monotonic() + self._timeout)
            self.error = error
            if self._is_closing.wait(pause):  # at the end of the run there is less time
                time.sleep(max(min(pause, 1.0, self._deadline - time.monotonic()), 0.05))
            pause = min(2 * pause, longest)
        return error

    def _give_up(self, action: str, error: Exception) -> None:
        if not (self._abandoned or self.given_up):
            self.error, self.given_up = error, True
            self._notices.failed(action, error)

    def _tell(self, writer: Writer) -> None:
        """Tell of a new note of the writer and of the first refused record."""
        if writer.note != self._note:
            self._note = writer.note
            self._notices.warn(writer.note)
        # giving up a backend that takes nothing has another warning
        if self.refusal is not None and self.sent and not self._has_told_of_refusal:
            self._has_told_of_refusal = True
            self._notices.warn(
                f"{writer.name} does not want a record ({describe(self.refusal)}); it is set aside "
                f"in {self._spool.refused_path}, and the rest goes on"
            )


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    except SystemExit as error:  # a client's; the thread is ours
        return RuntimeError(f"it wanted to exit: {error}")
    return None
