"""``IterTimerHook``: time every iteration, and the wait for data."""

from __future__ import annotations

import time

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["IterTimerHook"]


@HOOKS.register_module()
class IterTimerHook(Hook):
    """Measures the time of every iteration and of the wait for the batch.

    ==========  ======================================================================
    key         seconds
    ==========  ======================================================================
    data_time   from the end of the previous iteration to the start of this iteration
    time        from the end of the previous iteration to the end of this iteration
    ==========  ======================================================================

    The timer runs at ``LOW`` priority: the time of hooks of lower priority (loggers) belongs to the
    next iteration, as in mmcv. No device is synchronised.

    Source: mmcv's ``IterTimerHook``; the clock is monotonic here.
    """

    _reads_step = False
    _clock = staticmethod(time.perf_counter)
    """The clock, in seconds."""

    t: float | None = None
    """The end of the previous iteration, by the hook's clock."""

    def before_epoch(self, runner: Runner) -> None:
        """Start the clock."""
        self._start()

    def _start(self) -> None:
        self.t = self._clock()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock after the raw weights' validation, too, which calls no point."""
        after_raw_scores = Driver.of(trainer).after_raw_scores
        if after_raw_scores is not None:
            after_raw_scores.append(self._start)

    def before_iter(self, runner: Runner) -> None:
        """Log the wait for the batch."""
        now = self._clock()
        runner.log_buffer.update({"data_time": 0.0 if self.t is None else now - self.t})

    def after_iter(self, runner: Runner) -> None:
        """Log the whole iteration and start the next."""
        now = self._clock()
        runner.log_buffer.update({"time": 0.0 if self.t is None else now - self.t})
        self.t = now
