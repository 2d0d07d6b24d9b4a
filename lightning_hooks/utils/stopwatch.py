"""A stopwatch with accounts for the host's time, and GPU events without a synchronization."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Account", "GpuClock", "Stopwatch"]

Account = tuple[str, str]
"""A phase, and the name of the hook or method within the phase, or an empty string."""


class Stopwatch:
    """Charges every moment to a single account; the accounts add up to the elapsed time.

    ``enter(account)`` and ``leave()`` enclose a piece of work; an inner piece is charged to the
    inner account only. ``switch(account)`` sets the account for the time outside of all pieces.

    Args:
        account: The first account.
        gpu: A GPU clock; gets every change of phase.
        clock: A function; returns seconds.

    >>> now = iter([0.0, 1.0, 3.0, 3.5])
    >>> watch = Stopwatch(("data", ""), clock=lambda: next(now))
    >>> watch.enter(("hooks", "EMAHook")); watch.leave(); watch.switch(("other", ""))
    >>> watch.seconds
    {('data', ''): 1.5, ('hooks', 'EMAHook'): 2.0}
    """

    def __init__(
        self,
        account: Account,
        gpu: GpuClock | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds: dict[Account, float] = {}
        self.calls: dict[Account, int] = {}
        self.gpu = gpu
        self._clock = clock
        self._open = [account]
        self._since = clock()
        if gpu is not None:
            gpu.mark(account[0])

    def enter(self, account: Account) -> None:
        """Charge an account from now on; a phase inside the same phase keeps the hook's name."""
        current = self._open[-1]
        if not account[1] and account[0] == current[0]:
            account = current
        else:
            self.calls[account] = self.calls.get(account, 0) + 1
        self._charge(account)
        self._open.append(account)

    def leave(self) -> None:
        """Charge the previous account again."""
        if len(self._open) > 1:  # else a switch has closed it after an error
            self._charge(self._open[-2])
            self._open.pop()

    def switch(self, account: Account) -> None:
        """Close all open pieces and charge an account from now on."""
        self._charge(account)
        self._open = [account]

    def read(self) -> dict[Account, float]:
        """Return the seconds of all accounts up to now."""
        self._charge(self._open[-1])
        return dict(self.seconds)

    def reset(self) -> None:
        """Restart from zero, in the current account."""
        self._charge(self._open[-1])
        self.seconds.clear()
        self.calls.clear()
        if self.gpu is not None:
            self.gpu.reset(self._open[-1][0])

    def _charge(self, following: Account) -> None:
        now, account = self._clock(), self._open[-1]
        self.seconds[account] = self.seconds.get(account, 0.0) + now - self._since
        self._since = now
        if self.gpu is not None and following[0] != account[0]:
            self.gpu.mark(following[0])


class GpuClock:
    """Measures a GPU stream's time in each phase, by events.

    The host queues work ahead of the GPU: an event is recorded behind the work of a phase, and the
    time between two events is read after the GPU has passed both, without waiting. Time of the GPU
    without work, for example before a batch, counts for the host's phase.

    Args:
        new_event: A function; returns an event with ``record``, ``query``, ``synchronize`` and
            ``elapsed_time`` (milliseconds).
    """

    def __init__(self, new_event: Callable[[], Any] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._new_event = new_event or _cuda_event
        self._marks: deque[tuple[str, Any]] = deque()  # a phase, and the event of its start
        self._spare: list[Any] = []

    def mark(self, phase: str) -> None:
        """Begin a phase behind the work queued so far."""
        event = self._spare.pop() if self._spare else self._new_event()
        event.record()
        self._marks.append((phase, event))

    def collect(self, wait: bool = False) -> None:
        """Add up the phases finished by the GPU.

        Args:
            wait: Whether to wait for the remaining phases, at the end of a run.
        """
        if wait and self._marks:
            self._marks[-1][1].synchronize()
        while len(self._marks) > 1 and self._marks[1][1].query():
            phase, start = self._marks.popleft()
            spent = start.elapsed_time(self._marks[0][1]) / 1e3
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
            self._spare.append(start)

    def reset(self, phase: str) -> None:
        """Restart from zero, in a phase."""
        self.seconds.clear()
        self._marks.clear()
        self.mark(phase)


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
