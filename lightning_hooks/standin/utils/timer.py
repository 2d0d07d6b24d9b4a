"""mmcv's stopwatch."""

from __future__ import annotations

from time import time
from types import TracebackType

__all__ = ["Timer", "TimerError", "check_time"]


class TimerError(Exception):
    """Raised for a timer without a start."""


class Timer:
    """A stopwatch; as a context manager, print the time of the block.

    Args:
        start: Whether the timer starts now.
        print_tmpl: Template printed at the end of a ``with`` block, with ``{}`` for the seconds.
    """

    def __init__(self, start: bool = True, print_tmpl: str | None = None) -> None:
        self._is_running = False
        self.print_tmpl = print_tmpl or "{:.3f}"
        if start:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether the timer runs."""
        return self._is_running

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        print(self.print_tmpl.format(self.since_last_check()))
        self._is_running = False

    def start(self) -> None:
        """Start the timer, or mark a check if the timer runs."""
        if not self._is_running:
            self._t_start = time()
            self._is_running = True
        self._t_last = time()

    def since_start(self) -> float:
        """Return the seconds since the start; mark a check."""
        self._check()
        self._t_last = time()
        return self._t_last - self._t_start

    def since_last_check(self) -> float:
        """Return the seconds since the start or the last check; mark a check."""
        self._check()
        before, self._t_last = self._t_last, time()
        return self._t_last - before

    def _check(self) -> None:
        if not self._is_running:
            raise TimerError("timer is not running")


_timers: dict[str, Timer] = {}


def check_time(timer_id: str) -> float:
    """Return the seconds since the last call with the same name; 0 at the first call."""
    if timer_id not in _timers:
        _timers[timer_id] = Timer()
        return 0
    return _timers[timer_id].since_last_check()
