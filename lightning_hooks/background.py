"""Jobs of a thread beside the training, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lightning_hooks.snapshot import Snapshot

__all__ = ["BackgroundSaver"]


class BackgroundSaver:
    """Copies an object and has a thread write the copy.

    There is one buffer: the next save waits for the one before, and raises what went wrong there,
    if nobody has asked before.
    The thread is no daemon: a program that ends waits for the file.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._what = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # a copy or a pickle has its own thread and buffer

    def save(self, obj: Any, write: Callable[[Any], None], what: str) -> None:
        """Copy an object, and call ``write`` with the copy in the thread.

        Args:
            obj: What to write, which may change afterwards.
            write: Writes it.
            what: A name for it, for the note of an error.
        """
        self.wait()
        make = self._snapshot.take(obj)
        self._what = what
        # the name of the thread is what a profiler or a stack dump shows
        self._thread = threading.Thread(target=self._run, args=(make, write), name="save " + what)
        self._thread.start()

    def _run(self, make: Callable[[], Any], write: Callable[[Any], None]) -> None:
        try:
            write(make())
        except BaseException as error:  # the next save or the end of the fit raises it
            self._error = error

    def raise_error(self) -> None:
        """Raise what has gone wrong in the thread since the last call, without waiting for it."""
        if self._error is not None:
            self.wait()

    def is_writing(self, what: str) -> bool:
        """Whether this is still to be written, or could not be; what lies there is older."""
        is_alive = self._thread is not None and self._thread.is_alive()  # first: it may end now
        return (is_alive or self._error is not None) and self._what == what

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            BaseException: what went wrong in the thread since the last call, with a note.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(f"while {self._what} was written in the background")
            raise error
