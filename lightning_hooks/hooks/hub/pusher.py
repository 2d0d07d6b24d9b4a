"""``Pusher``: a thread that pushes the newest of what it is offered, and never raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Pusher"]

T = TypeVar("T")

PAUSE = 1.0, 60.0
"""Seconds before the second attempt; at most."""


class Pusher(Generic[T]):
    """Pushes what it is offered, one after the other; what waits gives way to what is newer.

    A push that fails is tried again after 1 s, 2 s, ... 60 s, until something newer is offered. A
    permanent error ends the attempts at this one.

    Args:
        push: Pushes one; it may take as long as it likes, and raise.
        is_permanent: Whether an error will not go away by itself.
        on_pushed: Called with one that has been pushed.
        on_dropped: Called with one that something newer replaces.
        on_error: Called with the error of an attempt, and whether there will be another.
    """

    def __init__(
        self,
        push: Callable[[T], object],
        *,
        is_permanent: Callable[[Exception], bool],
        on_pushed: Callable[[T], object],
        on_dropped: Callable[[T], object],
        on_error: Callable[[Exception, bool], object],
    ) -> None:
        self._push, self._is_permanent = push, is_permanent
        self._on_pushed, self._on_dropped, self._on_error = on_pushed, on_dropped, on_error
        self._changed = threading.Condition()
        self._next: T | None = None
        self._unsent: T | None = None
        self._last_attempt = float("inf")  # none begins later
        self._is_closing = self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="lightning_hooks hub", daemon=True)
        self._thread.start()

    def offer(self, item: T) -> None:
        """Have something pushed; this does not wait."""
        with self._changed:
            dropped, self._next = self._next, item
            self._changed.notify_all()
        if dropped is not None:
            self._on_dropped(dropped)

    def close(self, timeout: float, extra: float = 0.0) -> T | None:
        """Wait until all is pushed, or time is up; return what is not.

        Args:
            timeout: Seconds in which another attempt may begin.
            extra: Further seconds for one that has begun.
        """
        with self._changed:
            self._is_closing, self._last_attempt = True, time.monotonic() + timeout
            self._changed.notify_all()
        self._thread.join(timeout + extra)
        self._is_abandoned = self._thread.is_alive()
        with self._changed:
            return self._next or self._unsent

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._is_closing)
                item, self._next = self._next, None
                if item is None:
                    return
                dropped, self._unsent = self._unsent, item
            if dropped is not None:
                self._on_dropped(dropped)
            if self._push_until_newer(item) and not self._is_abandoned:
                self._unsent = None
                self._on_pushed(item)

    def _push_until_newer(self, item: T) -> bool:
        pause, longest = PAUSE
        while not self._is_abandoned:
            error = self._error_of_push(item)
            if error is None:
                return True
            is_late = time.monotonic() + pause > self._last_attempt
            ends = self._is_permanent(error) or is_late
            if not self._is_abandoned:
                self._on_error(error, not ends)
            if ends:
                return False
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None, pause)
                if self._next is not None:
                    return False
            pause = min(2 * pause, longest)
        return False

    def _error_of_push(self, item: T) -> Exception | None:
        try:
            self._push(item)
        except Exception as error:
            return error
        except BaseException as error:  # a client's SystemExit; the thread is ours
            return RuntimeError(repr(error))
        return None
