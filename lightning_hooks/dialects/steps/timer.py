"""The iteration timer of detectron2 and cvpods, and the clock behind it and Pet's."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import Any

from lightning_hooks.dialects.steps.hooks import at_least

__all__ = ["IterationTimer", "StepTimer"]


class StepTimer:
    """The times of steps, and the sum of them, without what hooks take between them.

    Args:
        warmup_iter: The first step that counts, from 1.
    """

    def __init__(self, warmup_iter: int) -> None:
        self.warmup_iter = at_least("warmup_iter", warmup_iter, 0)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.began = self.step_began = time.perf_counter()
        self.in_steps = 0.0
        self.done = self.counted = 0

    def start_step(self) -> None:
        """A step begins."""
        self.step_began = time.perf_counter()

    def end_step(self) -> float | None:
        """A step has ended; return its seconds if it counts."""
        now = time.perf_counter()
        self.done += 1
        if self.done < self.warmup_iter:
            self.began = now
            return None
        self.counted += 1
        self.in_steps += now - self.step_began
        return now - self.step_began

    def summary(self) -> Iterator[str]:
        """Yield the lines with the speed and the total time."""
        total = time.perf_counter() - self.began
        if self.counted and self.in_steps > 0:
            yield (
                f"Overall training speed: {self.counted} iterations in "
                f"{_clock(self.in_steps)} ({self.in_steps / self.counted:.4f} s / it)"
            )
        yield f"Total training time: {_clock(total)} ({_clock(total - self.in_steps)} on hooks)"


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=int(seconds)))


class IterationTimer:
    """Puts each step's seconds into the storage as ``time``; tells speed and total at the end.

    It stands first among the hooks, so that what the others take between steps is told apart.

    Args:
        warmup_iter: The first iteration that is timed, from 1.
    """

    trainer: Any

    def __init__(self, warmup_iter: int = 3) -> None:
        self._timer = StepTimer(warmup_iter)

    def before_train(self) -> None:
        """Start the clock."""
        self._timer.reset()

    def before_step(self) -> None:
        """Start the step's clock."""
        self._timer.start_step()

    def after_step(self) -> None:
        """Store how long the step took."""
        seconds = self._timer.end_step()
        if seconds is not None:
            self.trainer.storage.put_scalars(time=seconds)

    def after_train(self) -> None:
        """Tell the speed."""
        for line in self._timer.summary():
            self.trainer.logger.info(line)
