"""``Writer``: one run in a backend, as small as the smallest backend allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.record import Record

__all__ = ["PERMANENT", "PointWriter", "Writer"]

PERMANENT: tuple[type[Exception], ...] = (
    AttributeError,
    ImportError,
    KeyError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""What another attempt does not mend."""


class Writer:
    """One run in a backend; making one connects to it. Override ``log``, and what applies.

    All its methods are called by one thread, which is not the one that trains, and in the order
    of the records. What they raise is a reason to try again, unless :meth:`hopeless` says no.
    """

    name: str
    """The backend, as replays know it."""

    note: str = ""
    """What the user should know, of how the run was opened or of how something is stored."""

    run: Any = None
    """The client's run."""

    batch: int = 1
    """How many records ``write`` is given at once."""

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Writer:
        """Open a run; subclasses have ``connect(*, run=None, ...)``.

        Args:
            args: Nothing.
            kwargs: ``run``, one that is there already and not ours to end; and arguments in types
                that JSON has: a replay reads them from the spool.
        """
        raise NotImplementedError(f"{cls.__name__} must define connect(*, run=None, ...)")

    def write(self, records: Sequence[Record]) -> None:
        """Store records; the whole batch comes again if it raises."""
        for record in records:
            if record.params:
                self.params(record.params)
            if record.scalars or record.images or record.texts:
                self.log(record)

    def log(self, record: Record) -> None:
        """Store what was logged at a step; steps do not go back within a run."""

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters of the run."""

    def flush(self) -> None:
        """Bring what was stored to where a kill of this process does not reach it."""

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files of the run: paths on this machine, with the names that they get."""

    def close(self, failed: bool = False) -> None:
        """End the run in the backend."""

    def resume(self) -> dict[str, Any]:
        """Return the arguments that open this run again, for a replay."""
        return {}

    @staticmethod
    def hopeless(error: Exception) -> bool:
        """Whether trying again is of no use."""
        return isinstance(error, PERMANENT)

    @staticmethod
    def let_go() -> None:
        """See that a client that was given up does not hold up the end of the process."""


class PointWriter(Writer):
    """A writer to a backend that takes one value at a time; give ``add``.

    It knows how much of a record it has stored: what failed is sent again, what went well is not.
    """

    _stored = (-1, 0)  # which record, and how many of its values

    def add(self, name: str, value: Any, record: Record) -> None:
        """Store one value of a record: a number, a text or an image."""
        raise NotImplementedError(f"{type(self).__name__} must define add(name, value, record)")

    def log(self, record: Record) -> None:
        """Store what was logged at a step."""
        values = [*record.scalars.items(), *record.texts.items(), *record.images.items()]
        seq, stored = self._stored
        for index in range(stored if seq == record.seq else 0, len(values)):
            self.add(*values[index], record)
            self._stored = (record.seq, index + 1)
