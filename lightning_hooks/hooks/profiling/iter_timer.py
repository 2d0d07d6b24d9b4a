"""``IterTimerHook``: how long an iteration takes, and how long it waits for data."""

from __future__ import annotations

import time
from typing import Any

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS

__all__ = ["IterTimerHook"]


@HOOKS.register_module()
class IterTimerHook(Hook):
    """Measures the time of every iteration and of the wait for its batch.

    ==========  ======================================================================
    key         seconds
    ==========  ======================================================================
    data_time   from the end of the iteration before to the start of this one
    time        from the end of the iteration before to the end of this one
    ==========  ======================================================================

    The iteration ends for the timer when its turn comes at ``LOW`` priority: what hooks of lower
    priority do (writers) is in the next iteration's times, as in mmcv. No device is synchronised.

    Source: mmcv's ``IterTimerHook``; the clock is monotonic here.
    """

    reads_step = False
    clock = staticmethod(time.perf_counter)
    """Seconds, from any moment on."""

    t: float | None = None
    """When the iteration before ended, by :attr:`clock`."""

    def before_epoch(self, runner: Any) -> None:
        """Start the clock."""
        self.t = self.clock()

    def before_iter(self, runner: Any) -> None:
        """Note the wait for the batch."""
        now = self.clock()
        runner.log_buffer.update({"data_time": 0.0 if self.t is None else now - self.t})

    def after_iter(self, runner: Any) -> None:
        """Note the whole iteration and start the next."""
        now = self.clock()
        runner.log_buffer.update({"time": 0.0 if self.t is None else now - self.t})
        self.t = now
