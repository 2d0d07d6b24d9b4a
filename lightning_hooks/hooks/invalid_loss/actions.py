"""Actions on an invalid loss: raise, restore the last good state, or stop there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.invalid_loss.loss_history import Reading, Step, describe
from lightning_hooks.hooks.invalid_loss.rollback import LastGoodState

if TYPE_CHECKING:
    from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook

__all__ = ["Action", "InvalidLossError", "Restore", "Stop"]


class InvalidLossError(FloatingPointError, AssertionError):
    """A loss is NaN or infinite. An AssertionError too, as mmdetection raises."""


class Action:
    """Raises ``InvalidLossError``; the base class of the other actions.

    Args:
        hook: The hook, with the limits.
        runner: The runner of this fit.
    """

    guards_steps = False
    """Whether the action needs the events before each batch, backward and optimizer step."""

    keeps_state = False
    """Whether the action keeps the state at each interval, after a check of the weights."""

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        self.hook, self.runner = hook, runner

    def begin(self) -> None:
        """Run at the start of training."""

    def before_batch(self) -> None:
        """Run before a training batch."""

    def before_backward(self, loss: torch.Tensor) -> None:
        """Run before the backward of a loss."""

    def before_step(self, optimizer: torch.optim.Optimizer, iteration: int) -> None:
        """Run before an optimizer's step."""

    def flags(self) -> list[torch.Tensor]:
        """Return flags to read from the device with the losses, equal on all ranks."""
        return []

    def count(self, flags: list[bool]) -> None:
        """Take the values of the flags."""

    def first_bad_step(self, reading: Reading) -> Step | None:
        """Return this rank's first bad step, if any."""
        return reading.bad[0] if reading.bad else None

    def handle(self, reading: Reading, at_interval: bool) -> None:
        """Act on a reading, on all ranks together.

        Args:
            reading: The losses and weights.
            at_interval: Whether the reading was between two batches, not before a save.
        """
        if not reading.all_good:
            self.fail(reading)

    def fail(self, reading: Reading) -> None:
        """Raise ``InvalidLossError``."""
        since = "" if reading.first is None else f" since iter {reading.first[0]}"
        raise InvalidLossError(
            f"{self.describe(reading)}\nThe weights may be invalid{since}: resume from a "
            "checkpoint before it"
        )

    def describe(self, reading: Reading) -> str:
        """Describe the first bad step."""
        return describe(reading, self.runner.rank, self.hook.has_judged)

    def on_saved(self, path: Any) -> None:
        """Run after a full checkpoint was written, after a good reading."""

    def after_error(self, reading: Reading) -> None:
        """Run when another error ends the run; other ranks may be gone."""
        if not reading.all_good:
            self.runner.logger.warning("before the error: %s", self.describe(reading))

    def report(self) -> None:
        """Log a summary at the end of the run."""


class Restore(Action):
    """Restores the last good state, up to ``max_restores`` times, and then raises."""

    keeps_state = True

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        super().__init__(hook, runner)
        self._state = LastGoodState(runner.trainer)
        self._restores = 0
        self._limit: int | None = hook.max_restores

    def begin(self) -> None:
        """Keep the state at the start."""
        self._state.keep()

    def handle(self, reading: Reading, at_interval: bool) -> None:
        """Keep a good state; restore the last one after a bad reading."""
        if reading.all_good:
            if at_interval:
                self._state.keep()
            return
        if self._limit is not None and self._restores >= self._limit:
            raise InvalidLossError(
                f"{self.describe(reading)}\nmax_restores={self._limit}: the last good state "
                f"has been put back {self._restores} times already"
            )
        self._restores += 1
        source = self._state.restore()
        self.runner.logger.warning(
            "%s\nput back weights, optimizers and averages from %s; %s",
            self.describe(reading),
            source,
            self.proceed(),
        )

    def proceed(self) -> str:
        """Continue after a restore; return a phrase for the log."""
        limit = "" if self._limit is None else f" of {self._limit}"
        return f"training goes on (restore {self._restores}{limit})"

    def on_saved(self, path: Any) -> None:
        """Use this checkpoint for the next restores."""
        self._state.add_file(path)

    def after_error(self, reading: Reading) -> None:
        """Restore the good state: a callback may write a checkpoint because of the error."""
        super().after_error(reading)
        if not reading.all_good:
            if self.runner.world_size == 1:
                self._state.restore()
            else:
                self._state.restore_copy()


class Stop(Restore):
    """Restores the last good state and ends training."""

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        super().__init__(hook, runner)
        self._limit = None

    def proceed(self) -> str:
        """Stop training, also before ``min_epochs`` and ``min_steps``."""
        trainer = self.runner.trainer
        loop, fit = trainer.fit_loop, Driver.of(trainer).fit
        fit.callback(setattr, loop, "min_epochs", loop.min_epochs)
        fit.callback(setattr, loop.epoch_loop, "min_steps", loop.epoch_loop.min_steps)
        loop.min_epochs, loop.epoch_loop.min_steps = 0, None
        # all ranks had the same reading and need no agreement
        self.runner.should_stop = trainer.should_stop = True
        return "training stops"
