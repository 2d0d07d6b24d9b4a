"""``Session``: delivery of a run's records to a backend."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.notices import Notices
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.sender import LINGER, Sender
from lightning_hooks.loggers.delivery.spool import (
    Spool,
    StoredSpool,
    count_records,
    discard,
    is_shared,
    spools_in,
)
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.utils.secrets import describe, masked

__all__ = ["Session", "UndeliveredError", "replay_command"]


class UndeliveredError(RuntimeError):
    """Logged values have not reached the backend; raised with ``strict=True`` only."""


class Session:
    """Delivers records to a backend: a spool file holds the records, a thread sends the records.

    Unsent records of a killed process of the same run are sent first; a warning names the spools
    that other runs have left.

    Args:
        writer_class: The writer for the backend.
        connect: A function to open the writer.
        path: The spool.
        options: Options of ``lightning-hooks replay`` for the run.
        notices: The messages to the user.
        linger: Seconds for collecting records before a send.
        run: The run in the backend.
        evaluation: Whether the values are of an evaluation outside of a fit.
    """

    def __init__(
        self,
        writer_class: type[Writer],
        connect: Callable[[], Writer],
        path: str,
        options: Mapping[str, Any],
        notices: Notices,
        linger: float = LINGER,
        run: TrackedRun | None = None,
        evaluation: bool = False,
    ) -> None:
        self._run = run or TrackedRun()
        self._backend, self._options = writer_class.name, options
        self._shows_state = writer_class.shows_state
        self._connect, self._evaluation = connect, evaluation
        self.notices = notices
        self._has_reported_disk = self._failed = False
        self._taken: set[tuple[str, int]] = set()  # points left by a killed process
        self._uploads: list[Upload] = []
        head = {"writer": self._backend, "key": self._run.key, "format": 2}
        self._spool = Spool(path, {**head, "evaluation": True} if evaluation else head)
        self._adopt_leftovers()
        self.sender = Sender(writer_class, self._open, self._spool, notices, linger=linger)

    def _open(self) -> Writer:
        writer = self._connect()
        if self._evaluation:  # all values are new
            writer.stored, writer.note = {}, ""
        return writer

    # -- spools of ended processes ---------------------------------------------------------

    def _adopt_leftovers(self) -> None:
        """Take over what a killed process of this run has left; tell of other runs' records.

        A spool without records, of a process killed before the first record, is removed.
        """
        unsent, running = dict[str, str | None](), dict[str, str | None]()
        records = 0
        for path, head, has_ended in spools_in(self.folder, self._backend):
            with contextlib.suppress(OSError, ValueError):
                if path == self._spool.path:
                    continue
                if not has_ended:
                    self._tell_of_a_use(path, head)
                elif self._run.has_written(head):
                    self._take_over(path)
                elif count := count_records(path, rest=True):
                    unsent[path] = head["run"]
                    records += count
                elif self._spool.is_locked:  # else no end of a process is known
                    has_begun = count_records(path) > 0
                    killed = StoredSpool(path, rest=True).killed
                    if has_begun and killed and self._shows_state:
                        running[path] = head["run"]
                    elif killed or not has_begun:
                        discard(path)
        if is_shared(self.folder):  # whose spools may be of other programs
            return
        if running:
            text = f"{self._backend} may show a killed run as running; to end it"
            self._tell_the_commands(text, running)
        if unsent:
            text = f"earlier runs have left {records} records that {self._backend} has not taken"
            self._tell_the_commands(f"{text}; to send them", unsent)

    def _tell_of_a_use(self, path: str, head: Mapping[str, Any]) -> None:
        """Name a spool of this run that another process still uses, with unsent records."""
        count = count_records(path, rest=True) if self._run.has_written(head) else 0
        if count:
            text = (
                f"another process uses {path}, so that the {count} records that the run before has "
                "left in it are not sent; once that process has ended, to send them"
            )
            self._tell_the_commands(text, {path: head["run"]})

    def _tell_the_commands(self, text: str, spools: Mapping[str, str | None]) -> None:
        """Warn, with the command to send each spool of another run, given with the run's id."""
        options = {name: _without(self._run.key, v) for name, v in self._options.items()}
        commands = [
            replay_command(path, self._backend, _with_run(options, run_id))
            for path, run_id in spools.items()
        ]
        self.notices.log(logging.WARNING, f"{text}: {' && '.join(commands)}")

    def _take_over(self, path: str) -> None:
        """Move a killed process's unsent records, with the original times, to this spool."""
        left = StoredSpool(path, rest=True)
        for record in map(Record.without_lost_files, left):
            if self._run.includes(record):
                values = {k: v for k, v in vars(record).items() if k not in ("seq", "time", "step")}
                self._spool.append(record.time, record.step, **values)
                if record.step >= (self._run.after or 0):  # may be logged again
                    self._taken.update((name, record.step) for name in record.scalars)
                self._uploads += record.uploads
            else:
                for upload in record.uploads:
                    upload.discard()
        if self._spool.error is None:
            left.discard()

    # -- the run ---------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return how many records were ``logged``, ``sent`` and ``refused``; the last ``error``."""
        sender = self.sender
        counts = {"logged": self._spool.seq, "sent": sender.sent, "refused": sender.refused}
        return {**counts, "error": sender.error}

    def entry(self) -> dict[str, Any]:
        """Return the run for a checkpoint, with the backend's id if known."""
        writer = self.sender.writer
        return self._run.entry(None if writer is None else writer.run_id())

    @property
    def folder(self) -> str:
        """The folder of the spool, with the checkpoints to send."""
        return os.path.dirname(self._spool.path)

    def append(self, step: int, **values: Any) -> None:
        """Add the values of a step: ``scalars``, ``texts`` and other fields of a record.

        Any thread may add ``checkpoints``.
        """
        if self._taken:
            scalars = values.get("scalars", {}).items()
            values["scalars"] = {k: v for k, v in scalars if (k, step) not in self._taken}
        if "params" in values:
            values["params"] = masked(values["params"])
        uploads = values.get("checkpoints", {}).values()
        self._uploads += [upload for upload in uploads if upload is not None]
        self._spool.append(time.time(), step, **values)
        self.sender.wake()
        if self._spool.error is not None and not self._has_reported_disk:
            self._has_reported_disk = True
            text = f"{self._spool.path} cannot be written ({describe(self._spool.error)})"
            self.notices.warn(f"{text}; what is logged is kept in memory until it is sent")

    def undelivered(self) -> UndeliveredError | None:
        """Return an error if the backend's last call failed or a record was refused."""
        if (cause := self._cause) is None:
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
            self.notices.warn(self._summary())
        return self.undelivered()

    @property
    def _cause(self) -> Exception | None:
        return self.sender.error or self.sender.refusal

    def _summary(self) -> str:
        text = f"{self._backend} has taken {self.sender.sent} of {self._spool.seq} records"
        text += f" ({describe(self._cause)})" if self._cause is not None else ""
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
