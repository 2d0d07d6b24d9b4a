"""What is done about an invalid loss: raise, stop, restore, or skip the step."""

from __future__ import annotations

from typing import Any

import torch

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.hooks.invalid_loss.loss_history import Reading, Step, message
from lightning_hooks.hooks.invalid_loss.rollback import GoodState
from lightning_hooks.hooks.invalid_loss.skip_step import StepSkipper

__all__ = ["Action", "InvalidLossError", "action_of"]


class InvalidLossError(FloatingPointError, AssertionError):
    """A loss is NaN or infinite. An AssertionError too, as mmdetection raises."""


class Action:
    """Raises; the others say what they do instead.

    Args:
        hook: The hook, for its limits.
        runner: The runner of this fit.
    """

    skips = False
    """Whether it is asked before each optimizer step."""

    keeps = False
    """Whether it keeps what is good at each interval, which must then be known to be."""

    def __init__(self, hook: Any, runner: Any) -> None:
        self.hook, self.runner = hook, runner

    def before_batch(self) -> None:
        """Before a training batch."""

    def before_backward(self, loss: torch.Tensor) -> None:
        """Before a loss goes backward."""

    def before_step(self, optimizer: torch.optim.Optimizer, iteration: int) -> None:
        """Before an optimizer steps."""

    def flags(self) -> list[torch.Tensor]:
        """What else is to be read from the device now, the same on all ranks."""
        return []

    def bad_step(self, reading: Reading) -> Step | None:
        """Return this rank's first bad step, as far as it is known."""
        return reading.bad[0] if reading.bad else None

    def settle(self, reading: Reading, at_interval: bool) -> None:
        """Act on what was read, on all ranks together.

        Args:
            reading: The losses and weights.
            at_interval: It is one of those between two batches, and nothing is being saved.
        """
        if not reading.all_good:
            self.fail(reading)

    def fail(self, reading: Reading) -> None:
        """Raise, and say what to do."""
        since = "" if reading.first is None else f" since iter {reading.first[0]}"
        raise InvalidLossError(
            f"{self.said(reading)}\nThe weights may be spoilt{since}: go on from a checkpoint "
            "before it"
        )

    def said(self, reading: Reading) -> str:
        """Say what went bad first."""
        return message(reading, self.runner.rank)

    def note_file(self, path: Any) -> None:
        """A full checkpoint has been written, after a reading that was good."""

    def after_error(self, reading: Reading) -> None:
        """Another error ends the run; this rank is alone."""
        if not reading.all_good:
            self.runner.logger.warning("before the error: %s", self.said(reading))

    def report(self) -> None:
        """Say at the end of the run what there is to say."""

    def close(self) -> None:
        """Leave no trace; doing it twice does no harm."""


class Restore(Action):
    """Goes back to the last good state, so many times, and raises after that."""

    keeps = True

    def __init__(self, hook: Any, runner: Any) -> None:
        super().__init__(hook, runner)
        self._good = GoodState(runner.trainer)
        self._is_first = True
        self._count = 0

    def before_batch(self) -> None:
        """Keep the state at the start: now all hooks are ready, averages too."""
        if self._is_first:
            self._is_first = False
            self._good.keep()

    def settle(self, reading: Reading, at_interval: bool) -> None:
        """Go back, or keep what is good."""
        if reading.all_good:
            if at_interval:
                self._good.keep()
            return
        self._count += 1
        if not self.may_go_on():
            self.fail(reading)
        where = self._good.put_back()
        self.runner.logger.warning(
            "%s\nput back weights, optimizers and averages from %s; %s",
            self.said(reading),
            where,
            self.what_now(),
        )

    def may_go_on(self) -> bool:
        """Whether the limit has not been reached."""
        limit = self.hook.max_restores
        return limit is None or self._count <= limit

    def fail(self, reading: Reading) -> None:
        """Raise, and name the limit."""
        raise InvalidLossError(
            f"{self.said(reading)}\nmax_restores={self.hook.max_restores}: the last good state "
            f"has been put back {self._count - 1} times already"
        )

    def what_now(self) -> str:
        """Say how it goes on."""
        limit = "" if self.hook.max_restores is None else f" of {self.hook.max_restores}"
        return f"training goes on (restore {self._count}{limit})"

    def note_file(self, path: Any) -> None:
        """Go back to this one from now on."""
        self._good.note_file(path)

    def after_error(self, reading: Reading) -> None:
        """Put the good state back: a checkpoint may be written because of the error."""
        super().after_error(reading)
        if not reading.all_good:
            alone = self.runner.world_size == 1
            self._good.put_back() if alone else self._good.put_back_copy()


class Stop(Restore):
    """Goes back to the last good state and ends training."""

    _minimum: tuple[Any, Any] | None = None

    def may_go_on(self) -> bool:
        """It does not go on: there is no limit."""
        return True

    def what_now(self) -> str:
        """Stop, also before ``min_epochs`` and ``min_steps``."""
        trainer = self.runner.trainer
        if self._minimum is None:
            self._minimum = progress.lift_minimum(trainer)
        # on all ranks, as the reading was: nobody need be asked
        self.runner.should_stop = trainer.should_stop = True
        return "training stops"

    def close(self) -> None:
        """Give the Trainer its minimum back."""
        if self._minimum is not None:
            progress.restore_minimum(self.runner.trainer, self._minimum)
            self._minimum = None


class Skip(Action):
    """Does not make bad steps, so many in a row, and raises after that."""

    skips = True

    def __init__(self, hook: Any, runner: Any) -> None:
        super().__init__(hook, runner)
        self._skipper = StepSkipper(runner.trainer)
        self._decisions: list[tuple[int, torch.Tensor | bool]] = []
        self._steps = 0
        self._skipped: list[int] = []
        self._row: list[int] = []

    def before_batch(self) -> None:
        """Keep what the batch may spoil."""
        self._skipper.before_batch()

    def before_backward(self, loss: torch.Tensor) -> None:
        """Note what a step is to be judged by."""
        self._skipper.before_backward(loss)

    def before_step(self, optimizer: torch.optim.Optimizer, iteration: int) -> None:
        """Judge the step."""
        self._skipper.before_step(optimizer, iteration)

    def flags(self) -> list[torch.Tensor]:
        """Take the decisions that are still on the device."""
        self._decisions, self._skipper.decisions = self._skipper.decisions, []
        return [one for _, one in self._decisions if isinstance(one, torch.Tensor)]

    def bad_step(self, reading: Reading) -> Step | None:
        """Return the first with a bad loss, else the one whose gradients were bad."""
        skipped = self._now(reading)
        by_iter = {step.iter: step for step in reading.steps}
        found = super().bad_step(reading)
        return found if found or not skipped else by_iter.get(skipped[0])

    def settle(self, reading: Reading, at_interval: bool) -> None:
        """Count; raise if there were too many, or if weights are bad all the same."""
        skipped, limit = self._now(reading), self.hook.max_skips
        for (iteration, _), is_bad in zip(self._decisions, self._verdicts(reading), strict=True):
            self._row = [*self._row, iteration] if is_bad else []
            if limit is not None and len(self._row) > limit:
                raise InvalidLossError(
                    f"{self._said(reading)}\nmax_skips={limit}: {len(self._row)} optimizer steps "
                    f"were bad one after the other, from iter {self._row[0]} to iter {iteration}; "
                    "the weights are those from before them"
                )
        self._steps += len(self._decisions)
        self._skipped += skipped
        if reading.spoilt:
            self.fail(reading)
        if skipped:
            self.runner.logger.warning(
                "skipped the optimizer steps of iters %s\n%s",
                _numbers(skipped),
                self._said(reading),
            )
        if self._skipped:
            # not into the output: to a logger that would make it an evaluation's
            self.runner.log_buffer.replace({"skipped_steps": len(self._skipped)})

    def _verdicts(self, reading: Reading) -> list[bool]:
        """Return of each optimizer step since the last reading whether it was skipped."""
        flags = iter(reading.flags)
        return [next(flags) if isinstance(d, torch.Tensor) else d for _, d in self._decisions]

    def _now(self, reading: Reading) -> list[int]:
        """Return the iterations whose steps were skipped since the last reading."""
        verdicts = zip(self._decisions, self._verdicts(reading), strict=True)
        return [iteration for (iteration, _), is_bad in verdicts if is_bad]

    def _said(self, reading: Reading) -> str:
        if reading.all_good:
            return "their losses were finite, their gradients were not"
        return self.said(reading)

    def after_error(self, reading: Reading) -> None:
        """Nothing is spoilt."""

    def report(self) -> None:
        """Say how many there were."""
        if self._skipped:
            self.runner.logger.warning(
                "CheckInvalidLossHook skipped %d of %d optimizer steps: those of iters %s",
                len(self._skipped),
                self._steps,
                _numbers(self._skipped),
            )

    def close(self) -> None:
        """Leave the optimizers as they were."""
        self._skipper.close()


def action_of(hook: Any, runner: Any) -> Action:
    """Make the action that a hook asks for, for one fit."""
    kinds = {"raise": Action, "stop": Stop, "restore": Restore, "skip": Skip}
    return kinds[hook.action](hook, runner)


def _numbers(iters: list[int], most: int = 10) -> str:
    shown = ", ".join(map(str, iters[:most]))
    return shown if len(iters) <= most else f"{shown} and {len(iters) - most} more"
