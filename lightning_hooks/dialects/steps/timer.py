"""``IterationTimer`` of detectron2 and cvpods, and ``StepTimer``, which Pet's uses too."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import Any

from lightning_hooks.utils.arguments import check_int

__all__ = ["IterationTimer", "StepTimer"]


class StepTimer:
    """Measures each step, and all of them together, without the time of hooks between them.

    Args:
        warmup_iter: Number of the first step that counts, from 1.
    """

    def __init__(self, warmup_iter: int) -> None:
        check_int("warmup_iter", warmup_iter, 0)
        self.warmup_iter = warmup_iter
        self.reset()

    def reset(self) -> None:
        """Start again from zero."""
        self.began = self.step_began = time.perf_counter()
        self.in_steps = 0.0
        self.done = self.counted = 0

    def start_step(self) -> None:
        """Note the beginning of a step."""
        self.step_began = time.perf_counter()

    def end_step(self) -> float | None:
        """Return the seconds since the beginning of the step, None during the warm-up."""
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
    """Stores each step's seconds as ``time``; logs speed and total time at the end.

    List it first, so that the time of the other hooks is logged separately.

    Args:
        warmup_iter: Number of the first iteration that is timed, from 1.
    """

    trainer: Any

    def __init__(self, warmup_iter: int = 3) -> None:
        self._timer = StepTimer(warmup_iter)

    def before_train(self) -> None:
        """Start the timer of the run."""
        self._timer.reset()

    def before_step(self) -> None:
        """Start the timer of the step."""
        self._timer.start_step()

    def after_step(self) -> None:
        """Store the seconds of the step."""
        seconds = self._timer.end_step()
        if seconds is not None:
            self.trainer.storage.put_scalars(time=seconds)

    def after_train(self) -> None:
        """Log speed and total time."""
        for line in self._timer.summary():
            self.trainer.logger.info(line)
