"""``Writer``: the interface of a run in a backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.uploads.upload import Upload

__all__ = ["PERMANENT", "PointWriter", "Writer", "fail", "repeating_no_step"]

PERMANENT: tuple[type[Exception], ...] = (
    AttributeError,
    ImportError,
    KeyError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""Errors that another attempt does not repair."""


class Writer:
    """A run in a backend. Override ``connect``, ``log``, and what else the backend has.

    A thread beside the training calls all methods, in the order of the records. An exception means
    that the call is tried again, unless :meth:`is_permanent` returns True for it.

    Args:
        run: The client's run.
        owned: Whether the run was opened here, and is to be ended here.
    """

    name: str
    """The name of the backend in spools and for replays."""

    note: str = ""
    """A message for the user on how the run was opened, or something is stored."""

    takes: Collection[str] = ("images",)
    """What the backend holds, of images, tables, histograms and checkpoints."""

    batch: int = 1
    """The largest number of records that ``write`` gets at once."""

    chunk: int = 256
    """The largest number of records that are sent twice if the process is killed meanwhile; small
    for a backend that would store both."""

    stored: Mapping[str, Collection[int]] = MappingProxyType({})
    """Steps that a continued run has by now, by the backend's names; they are not sent again."""

    def __init__(self, run: Any = None, *, owned: bool = True) -> None:
        self.run = run
        self._owned = owned

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Writer:
        """Open a run; subclasses have ``connect(*, run=None, ...)``.

        Args:
            args: Nothing.
            kwargs: ``run``, an open run that is not ended here, and arguments of the client.
        """
        raise NotImplementedError(f"{cls.__name__} must define connect(*, run=None, ...)")

    @classmethod
    def options(cls, run: Any, **arguments: Any) -> dict[str, Any]:
        """Return the options of ``lightning-hooks replay`` that lead to a run.

        Args:
            run: The open run that is used, if any.
            arguments: Other arguments of ``connect``.
        """
        return {}

    @classmethod
    def arguments_for(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the arguments of ``connect`` for options of ``lightning-hooks replay``.

        Args:
            args: Nothing.
            options: Those of the tracker in the table of trackers.
        """
        raise NotImplementedError(f"{cls.__name__} must define arguments_for(...) for a replay")

    def write(self, records: Sequence[Record]) -> None:
        """Store records; after an exception the whole batch comes again."""
        for record in records:
            if record.params:
                self.params(record.params)
            if record.points:
                self.log(record)
            self.checkpoints(record)

    def checkpoints(self, record: Record) -> None:
        """Send checkpoints, and delete others; a second attempt finds some of it done."""
        for name, upload in record.checkpoints.items():
            if upload is None:
                self.delete_checkpoint(name)
            else:
                self.send_checkpoint(name, upload, record.step)

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Store a checkpoint, with its aliases; return when it is there."""
        raise NotImplementedError(f"{type(self).__name__} must define send_checkpoint")

    def delete_checkpoint(self, name: str) -> None:
        """Delete a checkpoint, if there is one of that name."""
        raise NotImplementedError(f"{type(self).__name__} must define delete_checkpoint")

    def log(self, record: Record) -> None:
        """Store the values of a step; steps do not decrease within a run."""

    def stored_name(self, name: str) -> str:
        """Return the backend's name for a number."""
        return name

    def keep_stored(self, stored: Mapping[str, Collection[int]], after: int) -> None:
        """Leave the points that a continued run has after its checkpoint as they are.

        Args:
            stored: Their steps, by the backend's names.
            after: The last step of the checkpoint.
        """
        self.stored = stored
        last = max((max(steps, default=0) for steps in stored.values()), default=0)
        if last > after + 1:  # the validation that ended the epoch has that number
            self.note = (
                f"{self.name} has points of this run up to step {last}, from a process that went "
                f"beyond the checkpoint at step {after}: they stay, and new values for their steps "
                'are left out (resume="never" begins a run of its own)'
            )

    def new_points(self, record: Record) -> Record:
        """Return a record without the numbers that the run has by now."""
        if not self.stored:
            return record
        scalars = {
            name: value
            for name, value in record.scalars.items()
            if record.step not in self.stored.get(self.stored_name(name), ())
        }
        return dataclasses.replace(record, scalars=scalars)

    def left_out(self, record: Record) -> list[str]:
        """Return the kinds of a record's samples and files that the backend does not hold."""
        kinds = (*KINDS, "checkpoints")
        return [kind for kind in kinds if getattr(record, kind) and kind not in self.takes]

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters of the run."""

    def flush(self) -> None:
        """Make sure that stored values survive a kill of this process."""

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files of the run: paths on this machine, each with its name in the backend."""

    def close(self, failed: bool = False) -> None:
        """End the run in the backend."""

    def run_id(self) -> str | None:
        """Return the backend's id of the run, None if the run has none."""
        return None

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether another attempt would raise the same error."""
        return isinstance(error, PERMANENT)

    @staticmethod
    def on_abandoned() -> None:
        """Keep a client that does not answer from blocking the end of the process."""


class PointWriter(Writer):
    """A writer for a backend that takes one value at a time; override ``add``.

    It counts the stored values of a record, so that a second attempt stores none of them twice.
    """

    _stored = (-1, 0)  # the record's number, and how many of its values

    def add(self, name: str, value: Any, record: Record) -> None:
        """Store one value of a record: a number, a text or a sample."""
        raise NotImplementedError(f"{type(self).__name__} must define add(name, value, record)")

    def log(self, record: Record) -> None:
        """Store the values of a step."""
        points = record.points
        seq, stored = self._stored
        for index in range(stored if seq == record.seq else 0, len(points)):
            self.add(*points[index], record)
            self._stored = (record.seq, index + 1)


def repeating_no_step(connect: Callable[[], Writer]) -> Writer:
    """Connect for an evaluation outside of a fit, whose values are new ones of its step."""
    writer = connect()
    writer.stored, writer.note = {}, ""
    return writer


def fail(error: Exception) -> Writer:
    """Raise the error, in place of a connection that could not be prepared."""
    raise error
