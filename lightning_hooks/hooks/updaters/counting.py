"""``CountedHook``: a hook that counts the run in epochs, iterations or optimizer steps."""

from __future__ import annotations

from typing import Any

import lightning as L

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps, InSteps

__all__ = ["CountedHook"]

EPOCHS = "max_epochs; with max_steps, by_epoch=False"
ITERATIONS = "max_epochs and a loader with a length, or max_steps with automatic optimization"
STEPS = "max_steps, or with automatic optimization max_epochs and a loader with a length"


class CountedHook(Hook):
    """A hook that counts the run in epochs, iterations or optimizer steps.

    With ``by_step`` its iterations are the optimizer steps that were made. The number of those
    that the Trainer's gradient scaler has skipped is its state.
    """

    by_epoch: bool = True
    by_step: bool = False
    _applied: AppliedSteps | None = None
    _skipped_before = 0

    def start_counting(self, runner: Any) -> None:
        """Count the skipped steps from now on, with ``by_step``."""
        if self.by_step:
            if runner.trainer.global_step == 0:
                self._skipped_before = 0
            self._applied = AppliedSteps(runner.trainer)

    def as_counted(self, runner: Any) -> Any:
        """Return the runner as the policy sees it: its iterations are steps with ``by_step``."""
        if not self.by_step or type(runner) is InSteps:
            return runner
        return InSteps(runner, self._skipped)

    @property
    def iteration_unit(self) -> str:
        """The name of what is counted within an epoch."""
        return "optimizer step" if self.by_step else "iteration"

    def iters_of(self, runner: Any, epochs: int) -> int:
        """Return the iterations of the run's first epochs; its steps, with ``by_step``.

        Raises:
            ValueError: if the loader has no length.
        """
        if self.by_step:
            steps: int = runner.optimizer_steps_of(epochs)
            return steps
        batches = runner.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError(
                f"{type(self).__name__} counts epochs as iterations: the training loader needs a "
                "length, or Trainer(limit_train_batches=...) has to give it one; without, count "
                "iterations (by_epoch=False, warmup_by_epoch=False)"
            )
        return epochs * int(batches)

    def run_length(self, runner: Any) -> int | None:
        """Return the length of the run as the policy counts it, None if it is unknown."""
        total: int | None = runner.max_epochs if self.by_epoch else runner.max_iters
        return total

    def required_length(self, runner: Any) -> int:
        """Return :meth:`run_length`.

        Raises:
            ValueError: if it is unknown.
        """
        total = self.run_length(runner)
        if total is None:
            limit = EPOCHS if self.by_epoch else STEPS if self.by_step else ITERATIONS
            raise ValueError(f"{type(self).__name__} needs the length of the run: give {limit}")
        return total

    # -- the skipped steps of by_step --------------------------------------------------------

    @property
    def _skipped(self) -> int:
        return self._skipped_before + (0 if self._applied is None else self._applied.skipped)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of skipped steps, if there were any."""
        return {"skipped_steps": self._skipped} if self._skipped else {}

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Reset the number of skipped steps."""
        self._skipped_before = 0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the number of skipped steps."""
        self._skipped_before = state_dict.get("skipped_steps", 0)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Stop counting the optimizers' steps."""
        if self._applied is not None:
            self._applied.close()
            self._skipped_before, self._applied = self._skipped, None

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Stop counting the optimizers' steps: there is no teardown after an error."""
        self.teardown(trainer, pl_module, "fit")
