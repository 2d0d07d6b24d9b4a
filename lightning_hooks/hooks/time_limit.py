"""``TimeLimitHook``: end a run before the time of a job is over, so that the next job goes on."""

from __future__ import annotations

import os
import time
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.last import CheckpointHook
from lightning_hooks.utils.arguments import check_number, shown
from lightning_hooks.utils.process_age import process_age

__all__ = ["TimeLimitHook", "TimeLimitReached", "next_look"]

EXIT_STATUS = 85
"""The exit status of a process that is to be started again, as HTCondor names it."""

SLURM_END = "SLURM_JOB_END_TIME"


class TimeLimitReached(SIGTERMException):
    """The end of a fit by a :class:`TimeLimitHook`; uncaught, the process's exit status is 85."""

    def __init__(self) -> None:
        super().__init__(EXIT_STATUS)


def next_look(done: int, left: float, longest: float) -> int:
    """Return the number of iterations done at which the clock is to be looked at next.

    At half of the time left, if all iterations were as long as the longest so far; a run looks
    some twenty times.

    Args:
        done: The iterations done.
        left: Seconds until the run has to end.
        longest: Seconds of the longest iteration so far.

    >>> next_look(100, left=3600.0, longest=2.0)
    1000
    >>> next_look(1900, left=3.0, longest=2.0)
    1901
    """
    return done + max(1, int(left / max(longest, 1e-6) / 2))


@HOOKS.register_module()
class TimeLimitHook(Hook):
    """Ends the run before the time limit of its job, with a checkpoint for the next job.

    The time is the process's own, from its start: each job that goes on has its whole time again.
    ``Trainer(max_time=...)`` counts all jobs of a run together, so that a second job with the same
    limit makes no step.

    The run stops when two iterations as long as the longest so far, with their validation and their
    files, and a fiftieth of the limit, at most 30 seconds, may not fit any more; with accumulated
    gradients after a step. Each
    ``CheckpointHook`` writes a file ``iter_<n>.pth`` then, and before the next batch ``fit`` raises
    :class:`TimeLimitReached`, a ``SystemExit`` with the exit status 85. A script's lines after
    ``fit`` do not run, and the job script knows that the run is not finished.

    Rank 0's clock counts. The ranks agree when to look at the clock next, some twenty times in a
    run; no other step waits for a rank.

    Args:
        hours: Hours from the start of the process, or ``"slurm"``: until the end of the Slurm job,
            of the environment variable ``SLURM_JOB_END_TIME``.
        minutes: Minutes from the start of the process.

    Raises:
        TypeError: for a time that is no number.
        ValueError: for none or both of the arguments, a time that is not above 0, or ``"slurm"``
            outside of a Slurm job.
        TimeLimitReached: in training.

    >>> TimeLimitHook(hours=7.8).seconds
    28080.0
    """

    _reads_step = False
    _transient = ("_last_end", "_longest", "_look_at", "_stops_at")

    def __init__(self, hours: float | str | None = None, minutes: float | None = None) -> None:
        super().__init__()
        if (hours is None) == (minutes is None):
            raise ValueError(
                f"give hours or minutes, got hours={shown(hours)} and minutes={shown(minutes)}"
            )
        self.seconds = _seconds(hours, minutes)
        """The limit, from the start of the process."""
        self._stops_at: int | None = None

    def before_run(self, runner: Runner) -> None:
        """Look at the clock from the second iteration on; warn without a ``CheckpointHook``."""
        super().before_run(runner)
        self._stops_at = None
        self._look_at, self._longest = runner.iter + 2, 0.0
        self._last_end: float | None = None
        if not _checkpoint_hooks(runner):
            runner.logger.warning(
                "TimeLimitHook ends the run without a file, because the Trainer has no "
                "CheckpointHook: the next job repeats all iterations since the last file"
            )

    def before_train_iter(self, runner: Runner) -> None:
        """End the run, if the file of the last iteration is written."""
        if self._stops_at == runner.iter:
            runner.trainer.strategy.barrier("TimeLimitHook")
            raise TimeLimitReached

    def after_train_iter(self, runner: Runner) -> None:
        """Measure the iteration; ask for a file if the run ends."""
        now, done = time.monotonic(), runner.iter + 1
        if self._last_end is not None:  # the first iteration warms up
            self._longest = max(self._longest, now - self._last_end)
        self._last_end = now
        is_open = self._stops_at is not None or progress.accumulates(runner.trainer)
        if done >= self._look_at and not is_open:
            self._look(runner, done)

    def _look(self, runner: Runner, done: int) -> None:
        """Agree with the other ranks on the end, or on when to look next."""
        until_next_look = runner.trainer.accumulate_grad_batches  # between steps there is no file
        reserve = (until_next_look + 1) * self._longest + min(self.seconds / 50, 30)
        left = self.seconds - process_age() - reserve
        look = next_look(done, left, self._longest)
        if runner.world_size > 1:
            left, look = runner.trainer.strategy.broadcast((left, look))
        self._look_at = look
        if left > 0:
            return
        self._stops_at = done
        rest = left + reserve
        runner.logger.info(
            "TimeLimitHook: %.2f hours of the job are over%s: the run ends after %d "
            'iterations. To go on write trainer.fit(..., ckpt_path="last")',
            *(self.seconds / 3600, f" in {rest:.0f} s" if rest > 0 else "", done),
        )
        for hook in _checkpoint_hooks(runner):
            hook.save_after_iter(runner)


def _seconds(hours: float | str | None, minutes: float | None) -> float:
    if isinstance(hours, str):
        if hours != "slurm":
            raise ValueError(f"hours must be a number or 'slurm', got {shown(hours)}")
        return _slurm_end() - time.time() + process_age()
    if minutes is not None:
        check_number("minutes", minutes, above=0)
        return 60.0 * minutes
    check_number("hours", hours, above=0)
    return 3600.0 * float(hours or 0)


def _checkpoint_hooks(runner: Runner) -> list[CheckpointHook]:
    hooks: list[Any] = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook)]
    return hooks


def _slurm_end() -> float:
    """Return when the Slurm job ends, in seconds since 1970."""
    text = os.environ.get(SLURM_END, "")
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"hours='slurm' needs a Slurm job's {SLURM_END}, in seconds since 1970, got {text!r}"
        ) from None
