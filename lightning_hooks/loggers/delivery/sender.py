"""``Delivery``: a thread that brings what is in a spool to a backend, and never raises."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import Spool
from lightning_hooks.loggers.delivery.writer import Writer

__all__ = ["LINGER", "Delivery"]

_CHUNK = 256  # records between two acknowledgements
LINGER = 5.0  # seconds in which records gather: a thread that wakes up at each would slow steps
_GRACE = 0.5  # seconds after the end of the time
_BACKOFF = 0.5, 30.0  # seconds before the second attempt; at most


class Delivery:
    """Sends the records of a spool to a backend, in order, from a thread of its own.

    The client is started there too. An error is tried again after 0.5 s, 1 s, ... 30 s; one that
    no attempt mends ends the sending, and the spool keeps what was not sent. A call that hangs
    is left behind at the end: nobody waits for longer than was agreed.

    Args:
        name: The backend; the thread is named so.
        connect: What opens the writer.
        spool: Where the records are.
        hopeless: Whether an error is not worth another attempt.
        tell: Called with what could not be done, the error, and whether that is final: with the
            first error of a row, and with the last.
        back: Called when an attempt succeeds after errors.
        look: Called with the writer when there is one, and after each batch that it has taken.
        let_go: Called in another thread when the time is up or nothing is sent any more: it sees
            that the client does not hold up the end of the process.
        linger: Seconds in which records gather before they are sent.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Writer],
        spool: Spool,
        *,
        hopeless: Callable[[Exception], bool] = Writer.hopeless,
        tell: Callable[[str, Exception, bool], None] = lambda what, error, final: None,
        back: Callable[[], None] = lambda: None,
        look: Callable[[Writer], None] = lambda writer: None,
        let_go: Callable[[], None] = lambda: None,
        linger: float = LINGER,
    ) -> None:
        self.writer: Writer | None = None
        self.error: Exception | None = None
        """The last error, None when all is well."""
        self.given_up = False
        """Whether nothing is sent any more."""
        self.sent = 0
        """How many records the backend has taken."""
        self._connect, self._spool = connect, spool
        self._hopeless, self._tell = hopeless, tell
        self._back, self._look, self._let_go = back, look, let_go
        self._news, self._moved, self._closing, self._done = (threading.Event() for _ in range(4))
        self._linger = linger
        self._abandoned = False
        self._deadline = float("inf")
        self._failed = False
        self._files: Sequence[tuple[str, str]] = ()
        thread = threading.Thread(target=self._run, name=f"lightning_hooks {name}", daemon=True)
        thread.start()

    # -- the thread that trains ------------------------------------------------------------

    def wake(self) -> None:
        """Say that there is a new record."""
        self._news.set()

    def close(
        self, timeout: float, *, failed: bool = False, files: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Say that there will be no more records; this does not wait.

        Args:
            timeout: Seconds from now in which the rest is sent and the run is ended.
            failed: Whether the training has failed.
            files: What is sent after the last record: paths with names.
        """
        self._failed, self._files = failed, files
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._news.set()

    def wait(self) -> bool:
        """Wait until all is sent and the run is ended, or time is up; return whether it is."""
        # the last attempt may have begun in time
        ended = self._done.wait(max(self._deadline - time.monotonic(), 0) + _GRACE)
        if not ended:
            self._abandoned = self.given_up = True
            self.error = self.error or TimeoutError("it does not answer")
        if self.given_up:
            letting = threading.Thread(target=_error_of, args=(self._let_go,), daemon=True)
            letting.start()
            letting.join(_GRACE)
        return self.error is None

    def settle(self, number: int, timeout: float) -> None:
        """Wait until there is a writer that has taken so many records, or time is up."""
        end = time.monotonic() + timeout
        while not self._done.is_set() and (self.writer is None or self.sent < number):
            self._moved.clear()
            if self.writer is not None and self.sent >= number:
                return
            if not self._moved.wait(max(end - time.monotonic(), 0)):
                return

    # -- the thread that sends -------------------------------------------------------------

    def _run(self) -> None:
        try:
            if not self._attempt("started", self._open):
                return
            self._look(self._the_writer)
            if self._send_all() and self._files:
                self._attempt("sent its files", lambda: self._the_writer.send_files(self._files))
            self._close()
        except BaseException as error:  # such as the client's own SystemExit
            self._give_up("used", RuntimeError(repr(error)))
        finally:
            self._done.set()
            self._moved.set()

    def _open(self) -> None:
        self.writer = self._connect()
        self._moved.set()

    @property
    def _the_writer(self) -> Writer:
        assert self.writer is not None
        return self.writer

    def _send_all(self) -> bool:
        """Send records until there will be no more; False if that is not possible."""
        writer = self._the_writer
        while True:
            self._news.clear()
            closing = self._closing.is_set()  # asked first: what came before is in the spool
            records = self._spool.take(_CHUNK)
            if records:
                count = self._send(records)
                if not self._abandoned:
                    self._spool.acknowledge(count, writer.resume())
                if count < len(records):
                    return False
                if count < _CHUNK:  # else there are more already
                    self._closing.wait(self._linger)
            elif closing:
                return True
            else:
                self._news.wait()

    def _send(self, records: list[Record]) -> int:
        """Send records; return how many the backend has for sure."""
        writer, before = self._the_writer, self.sent
        for start in range(0, len(records), writer.batch):
            batch = records[start : start + writer.batch]
            if not self._attempt("written to", functools.partial(writer.write, batch)):
                return self.sent - before if _error_of(writer.flush) is None else 0
            self.sent += len(batch)
            self._moved.set()
            self._look(writer)
        return self.sent - before if self._attempt("written to", writer.flush) else 0

    def _close(self) -> None:
        """End the run, once: there is nothing to lose any more."""
        if self.writer is None or self._abandoned:
            return
        try:
            self.writer.close(self._failed)
        except Exception as error:
            self._give_up("closed", error)

    def _attempt(self, what: str, call: Callable[[], object]) -> bool:
        """Call until it does not raise; False if there is no more sense in it."""
        pause, longest = _BACKOFF
        while not self._abandoned:
            error = _error_of(call)
            if error is None:
                if self.error is not None and not self._abandoned:
                    self.error = None
                    self._back()
                return True
            if self._hopeless(error) or time.monotonic() >= self._deadline:
                self._give_up(what, error)
                return False
            if self.error is None:
                self._tell(what, error, False)
            self.error = error
            self._rest(pause)
            pause = min(2 * pause, longest)
        return False

    def _rest(self, seconds: float) -> None:
        """Wait before another attempt; at the end of the run there is less time to."""
        if not self._closing.wait(seconds):
            return
        left = self._deadline - time.monotonic()
        time.sleep(max(min(seconds, 1.0, left), 0.05))

    def _give_up(self, what: str, error: Exception) -> None:
        if not self._abandoned:
            self.error, self.given_up = error, True
            self._tell(what, error, True)


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    except SystemExit as error:  # a client's; the thread is ours
        return RuntimeError(f"it wanted to exit: {error}")
    return None
