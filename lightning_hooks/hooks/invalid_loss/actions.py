"""``Action``: what ``CheckInvalidLossHook`` does about an invalid loss; the base raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.invalid_loss.loss_history import Reading, Step, describe

if TYPE_CHECKING:
    from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook

__all__ = ["Action", "InvalidLossError"]


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

    def state(self) -> dict[str, Any]:
        """Return the counts for a checkpoint."""
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint with these counts, before :meth:`begin`."""

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
        return describe(reading, self.runner.rank, self.hook.has_losses)

    def on_saved(self, path: Any) -> None:
        """Run after a full checkpoint was written, after a good reading."""

    def after_error(self, reading: Reading) -> None:
        """Run when another error ends the run; other ranks may be gone."""
        if not reading.all_good:
            self.runner.logger.warning("before the error: %s", self.describe(reading))

    def report(self) -> None:
        """Log a summary at the end of the run."""
