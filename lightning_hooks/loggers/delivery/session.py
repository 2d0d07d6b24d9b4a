"""``Session``: delivery of a run's records to a backend."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.sender import LINGER, Sender
from lightning_hooks.loggers.delivery.spool import Spool, unsent_records
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun, take_over
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.utils.plain_types import describe

__all__ = ["Session", "UndeliveredError", "replay_command"]


class UndeliveredError(RuntimeError):
    """Logged values have not reached the backend; raised with ``strict=True`` only."""


class Session:
    """Delivers records to a backend through a spool file, which keeps unsent records.

    The first problem is logged as a warning, all others as information.

    Args:
        writer_class: The writer for the backend.
        connect: A function to open the writer.
        path: The spool.
        options: Options of ``lightning-hooks replay`` for the run.
        logger: The logger of the messages.
        owner: The name at the beginning of messages.
        linger: Seconds for collecting records before a send.
        run: The run in the backend. Unsent records of a killed process are sent first.
        evaluation: Whether the values are of an evaluation outside of a fit.
    """

    def __init__(
        self,
        writer_class: type[Writer],
        connect: Callable[[], Writer],
        path: str,
        options: Mapping[str, Any],
        logger: logging.Logger,
        owner: str,
        linger: float = LINGER,
        run: TrackedRun | None = None,
        evaluation: bool = False,
    ) -> None:
        self._run = run or TrackedRun()
        self._backend, self._options = writer_class.name, options
        self._connect, self._evaluation = connect, evaluation
        self._logger, self._owner = logger, owner
        self._has_warned = self._has_reported_disk = self._failed = False
        self._has_told_of_refusal = False
        self._note = ""  # the writer's last note
        self._refusal: Exception | None = None  # the first error
        self._taken: set[tuple[str, int]] = set()  # points left by a killed process
        self._uploads: list[Upload] = []
        folder = os.path.dirname(path)
        left = take_over(folder, self._backend, self._run)
        unsent = unsent_records(folder, self._backend)
        unsent = {name: count for name, count in unsent.items() if name not in left}
        if unsent:
            options = {name: _without(self._run.key, v) for name, v in options.items()}
            commands = (
                replay_command(path, self._backend, _with_run(options, run_id))
                for path, (run_id, _) in unsent.items()
            )
            self._log(
                logging.WARNING,
                f"earlier runs have left {sum(count for _, count in unsent.values())} records that "
                f"{self._backend} has not taken; to send them: {' && '.join(commands)}",
            )
        head = {"writer": self._backend, "key": self._run.key, "format": 2}
        self._spool = Spool(path, {**head, "evaluation": True} if evaluation else head)
        for left_behind in left.values():
            self._take(left_behind.records)
            left_behind.settle()
        self.sender = Sender(
            *(writer_class, self._open, self._spool),
            on_error=self.report,
            on_recovered=lambda: self._log(logging.INFO, f"{self._backend} is there again"),
            on_refused=self._keep_refusal,
            on_progress=self._report_note,
            linger=linger,
        )

    def _open(self) -> Writer:
        writer = self._connect()
        if self._evaluation:  # all values are new
            writer.stored, writer.note = {}, ""
        return writer

    def status(self) -> dict[str, Any]:
        """Return how many records were ``logged``, ``sent`` and ``refused``; the last ``error``."""
        sender = self.sender
        counts = {"logged": self._spool.seq, "sent": sender.sent, "refused": sender.refused}
        return {**counts, "error": sender.error}

    # -- the run ---------------------------------------------------------------------------

    def entry(self) -> dict[str, Any]:
        """Return the run for a checkpoint, with the backend's id if known."""
        writer = self.sender.writer
        return self._run.entry(None if writer is None else writer.run_id())

    def _take(self, records: Sequence[Record]) -> None:
        """Add another process's records with the original times."""
        for record in records:
            values = {k: v for k, v in vars(record).items() if k not in ("seq", "time", "step")}
            self._spool.append(record.time, record.step, **values)
            self._taken.update((name, record.step) for name in record.scalars)
            self._uploads += record.uploads

    def append(self, step: int, **values: Any) -> None:
        """Add the values of a step: ``scalars``, ``texts`` and other fields of a record."""
        if self._taken:
            found = values.get("scalars", {})
            values["scalars"] = {k: v for k, v in found.items() if (k, step) not in self._taken}
        self._spool.append(time.time(), step, **values)
        self.sender.wake()
        if self._spool.error is not None and not self._has_reported_disk:
            self._has_reported_disk = True
            text = f"{self._spool.path} cannot be written ({describe(self._spool.error)})"
            self._warn(f"{text}; what is logged is kept in memory until it is sent")

    @property
    def folder(self) -> str:
        """The folder of the spool, with the checkpoints to send."""
        return os.path.dirname(self._spool.path)

    def append_checkpoints(self, step: int, checkpoints: Mapping[str, Upload | None]) -> None:
        """Queue checkpoints to send, or to delete (None); any thread may call this method."""
        self._uploads += [upload for upload in checkpoints.values() if upload is not None]
        self.append(step, checkpoints=checkpoints)

    def settle(self, timeout: float) -> None:
        """Wait until the backend has taken all records, at most ``timeout`` seconds."""
        self.sender.settle(self._spool.seq, timeout)

    def undelivered(self) -> UndeliveredError | None:
        """Return an error if the backend's last call failed or a record was refused."""
        cause = self.sender.error or self._refusal
        if cause is None:
            return None
        error = UndeliveredError(self._summary())
        error.__cause__ = cause
        return error

    def close(self, timeout: float, *, failed: bool, files: Sequence[tuple[str, str]] = ()) -> None:
        """Announce the end of the records; :meth:`wait` waits for the delivery.

        Args:
            timeout: Seconds for the rest, plus a second for each megabyte of files and unsent
                checkpoints.
            failed: Whether the training has failed.
            files: Paths with names, sent after the last record.
        """
        megabytes = sum(upload.size for upload in self._uploads) / 1e6
        for path, _ in files:
            with contextlib.suppress(OSError):
                megabytes += os.path.getsize(path) / 1e6
        self._failed = failed
        self.sender.close(timeout + megabytes, failed=failed, files=files)

    def wait(self) -> UndeliveredError | None:
        """Wait for the end announced by ``close``; return the error, if any."""
        self.sender.wait()
        if self._spool.error is not None:
            self._spool.save_memory()
        is_unsent = self.sender.done < self._spool.seq
        keep = is_unsent or isinstance(self.sender.error, TimeoutError)
        self._spool.end(self._failed)
        self._spool.close(keep)
        if keep or self.sender.refused:
            self._warn(self._summary())
        return self.undelivered()

    # -- messages --------------------------------------------------------------------------

    def report(self, action: str, error: Exception, is_final: bool = True) -> None:
        """Log the error of an action, a participle such as ``"closed"``."""
        problem = f"{self._backend} cannot be {action} ({describe(error)})"
        text = f"{problem}; training goes on without it"
        self._warn(text if is_final else f"{text}, and it is tried again")

    def _summary(self) -> str:
        error = self.sender.error or self._refusal
        text = f"{self._backend} has taken {self.sender.sent} of {self._spool.seq} records"
        text += f" ({describe(error)})" if error is not None else ""
        path, disk_error = self._spool.path, self._spool.error
        if self.sender.refused:
            text += f", and refused {self.sender.refused}"
            if os.path.exists(self._spool.refused_path):
                text += f", which are in {self._spool.refused_path}"
        if self.sender.done == self._spool.seq:
            return text
        if disk_error is None and not os.path.exists(path):
            return f"{text}; the rest is lost, for {path} was deleted"
        if disk_error is None:
            run_id = self.entry()["run_id"] or self._options.get("run_id")
            options = _with_run(self._options, run_id)
            return f"{text}; to send the rest: {replay_command(path, self._backend, options)}"
        return f"{text}, and {path} could not hold them ({describe(disk_error)})"

    def _keep_refusal(self, error: Exception) -> None:
        self._refusal = self._refusal or error

    def _report_note(self, writer: Writer) -> None:
        if writer.note != self._note:
            self._note = writer.note
            self._warn(writer.note)
        # giving up a backend that takes nothing has another warning
        if self._refusal is not None and self.sender.sent and not self._has_told_of_refusal:
            self._has_told_of_refusal = True
            where = f"it is set aside in {self._spool.refused_path}, and the rest goes on"
            problem = f"{self._backend} does not want a record ({describe(self._refusal)})"
            self._warn(f"{problem}; {where}")

    def _warn(self, text: str) -> None:
        self._log(logging.INFO if self._has_warned else logging.WARNING, text)
        self._has_warned = True

    def _log(self, level: int, text: str) -> None:
        self._logger.log(level, "%s: %s", self._owner, text)


def _with_run(options: Mapping[str, Any], run_id: str | None) -> dict[str, Any]:
    """Return the options for another run, if the backend finds runs by id."""
    return {**options, "run_id": run_id} if "run_id" in options else dict(options)


def _without(key: str, value: Any) -> Any:
    """Return a folder without the run's key, which keeps a run apart from earlier runs.

    >>> _without("1f", "work/dvclive-1f"), _without("1f", "work/tf_logs/1f")
    ('work/dvclive', 'work/tf_logs')
    """
    if not isinstance(value, str):
        return value
    return value.removesuffix(f"-{key}").removesuffix(f"/{key}")


def replay_command(path: str, to: str, options: Mapping[str, Any]) -> str:
    """Return the shell command for sending the rest of a spool.

    >>> replay_command("my work/spool/now-wandb.jsonl", "wandb", {"dir": "my work", "mode": None})
    "lightning-hooks replay 'my work/spool/now-wandb.jsonl' --to wandb --dir 'my work'"
    """
    given = {name.replace("_", "-"): str(v) for name, v in options.items() if v is not None}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return shlex.join(["lightning-hooks", "replay", path, "--to", to, *words])
