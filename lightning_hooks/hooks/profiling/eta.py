"""The remaining seconds of a run, with its recurring work."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

__all__ = ["Recurring", "seconds_left"]


@dataclasses.dataclass
class Recurring:
    """Work that recurs after a number of iterations: an evaluation, a checkpoint.

    >>> work = Recurring()
    >>> for iteration in (100, 200, 200): work.record(iteration)
    >>> work.times, work.times_left(total=500)
    (2, 3)
    """

    times: int = 0
    first: int = 0
    last: int = 0

    def record(self, iteration: int) -> None:
        """Count the work after a number of iterations, once for each."""
        if self.times and iteration == self.last:
            return
        if not self.times:
            self.first = iteration
        self.times += 1
        self.last = iteration

    def times_left(self, total: int) -> int:
        """Return the number of times that are left in a run of ``total`` iterations."""
        if not self.times:
            return 0
        gap = self.last if self.times == 1 else (self.last - self.first) / (self.times - 1)
        return max(0, math.floor((total - self.last) / max(gap, 1) + 1e-9))


def seconds_left(
    done: int, total: int, per_iteration: float, recurring: Iterable[tuple[Recurring, float]]
) -> float:
    """Return the remaining seconds of a run.

    ``(total - done) * per_iteration``, and the seconds of each recurring work times the number of
    times that are left.

    Args:
        done: Iterations done.
        total: Iterations of the run.
        per_iteration: Seconds of an iteration without recurring work.
        recurring: Each work with its seconds at a time.

    >>> seconds_left(100, 300, 0.1, [(Recurring(times=1, first=100, last=100), 5.0)])
    30.0
    """
    later = sum(work.times_left(total) * seconds for work, seconds in recurring)
    return max(0, total - done) * per_iteration + later
