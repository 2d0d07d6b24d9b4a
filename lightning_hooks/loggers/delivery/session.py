"""``Sending``: one run's way to one backend, spool and thread, and what is said about it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.sender import LINGER, Delivery
from lightning_hooks.loggers.delivery.spool import Spool
from lightning_hooks.loggers.delivery.unsent import command, leftovers
from lightning_hooks.loggers.delivery.writer import Writer

__all__ = ["Sending", "UndeliveredError"]


class UndeliveredError(RuntimeError):
    """What was logged has not reached its backend; raised with ``strict=True`` only."""


class Sending:
    """Takes what is logged, and sees that it reaches the backend or stays in a file.

    The first thing that goes wrong is told as a warning, all others as information.

    Args:
        backend: The backend's name.
        writer_class: What writes to it.
        connect: What opens the writer.
        path: The spool.
        head: What the spool says of the run.
        logger: Where messages go.
        who: Who sends, for messages.
        at_once: Whether records are not gathered before they are sent.
    """

    def __init__(
        self,
        backend: str,
        writer_class: type[Writer],
        connect: Callable[[], Writer],
        path: str,
        head: Mapping[str, Any],
        logger: logging.Logger,
        who: str,
        at_once: bool = False,
    ) -> None:
        self._backend, self._who, self._logger = backend, who, logger
        self._warned = self._disk_told = False
        self._note = ""  # the last one of the writer's
        self._tell_of_earlier(os.path.dirname(path), writer_class.name)
        self._spool = Spool(path, head)
        self._delivery = Delivery(
            *(backend, connect, self._spool),
            hopeless=writer_class.hopeless,
            tell=self._tell,
            back=lambda: self._say(logging.INFO, f"{backend} is there again"),
            look=self._look,
            let_go=writer_class.let_go,
            linger=0.0 if at_once else LINGER,
        )

    @property
    def writer(self) -> Writer | None:
        """What writes to the backend, None until it has been opened."""
        return self._delivery.writer

    @property
    def given_up(self) -> bool:
        """Whether nothing is sent any more."""
        return self._delivery.given_up

    def status(self) -> dict[str, Any]:
        """Return how many records were ``logged`` and ``sent``, and the last ``error``, if any."""
        sent = self._delivery.sent
        return {"logged": self._spool.seq, "sent": sent, "error": self._delivery.error}

    # -- the run ---------------------------------------------------------------------------

    def append(self, step: int, **values: Any) -> None:
        """Take what was logged at a step: ``scalars``, ``texts``, ``images`` or ``params``."""
        self._spool.append(time.time(), step, **values)
        self._delivery.wake()
        if self._spool.error is not None and not self._disk_told:
            self._disk_told = True
            text = f"{self._spool.path} cannot be written ({_told(self._spool.error)})"
            self._warn(f"{text}; what is logged is kept in memory until it is sent")

    def settle(self, timeout: float) -> None:
        """Wait until the backend is there and has taken all, for some seconds at most."""
        self._delivery.settle(self._spool.seq, timeout)

    def check(self) -> None:
        """Raise what the backend has raised.

        Raises:
            UndeliveredError: if there is something.
        """
        if self._delivery.error is not None:
            raise self._error()

    def close(self, timeout: float, *, failed: bool, files: Sequence[tuple[str, str]] = ()) -> None:
        """Say that nothing more comes; this does not wait.

        Args:
            timeout: Seconds for the rest, with one more for each megabyte of files.
            failed: Whether the training has failed.
            files: Paths with names, sent after the last record.
        """
        megabytes = 0.0
        for path, _ in files:
            with contextlib.suppress(OSError):
                megabytes += os.path.getsize(path) / 1e6
        self._delivery.close(timeout + megabytes, failed=failed, files=files)
        self._failed = failed

    def wait(self) -> UndeliveredError | None:
        """Wait for what ``close`` has begun; return what is wrong with it."""
        delivered = self._delivery.wait()
        if self._spool.error is not None:
            self._spool.save_memory()
        unsent = self._delivery.sent < self._spool.seq
        kept = unsent or isinstance(self._delivery.error, TimeoutError)
        self._spool.end(self._failed)
        self._spool.close(keep=kept)
        if kept:
            self._warn(self._undelivered())
        return None if delivered else self._error()

    # -- messages --------------------------------------------------------------------------

    def tell(self, what: str, error: Exception) -> None:
        """Say what cannot be done."""
        self._tell(what, error, True)

    def _error(self) -> UndeliveredError:
        error = UndeliveredError(self._undelivered())
        error.__cause__ = self._delivery.error
        return error

    def _undelivered(self) -> str:
        error = self._delivery.error
        text = f"{self._backend} has taken {self._delivery.sent} of {self._spool.seq} records"
        text += f" ({_told(error)})" if error is not None else ""
        if self._spool.error is None:
            return f"{text}; to send the rest: {command([self._spool.path])}"
        return f"{text}, and {self._spool.path} could not hold them ({_told(self._spool.error)})"

    def _tell_of_earlier(self, folder: str, writer: str) -> None:
        left = leftovers(folder, writer)
        if left:
            text = f"earlier runs have left {sum(left.values())} records that {self._backend} "
            self._say(logging.WARNING, f"{text}has not taken; to send them: {command([*left])}")

    def _tell(self, what: str, error: Exception, final: bool) -> None:
        text = f"{self._backend} cannot be {what} ({_told(error)}); training goes on without it"
        self._warn(text if final else f"{text}, and it is tried again")

    def _look(self, writer: Writer) -> None:
        if writer.note != self._note:
            self._note = writer.note
            self._warn(writer.note)

    def _warn(self, text: str) -> None:
        level, self._warned = logging.INFO if self._warned else logging.WARNING, True
        self._say(level, text)

    def _say(self, level: int, text: str) -> None:
        self._logger.log(level, "%s: %s", self._who, text)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
