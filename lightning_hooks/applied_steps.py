"""Optimizer steps that were made: a gradient scaler leaves some out."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks import loops

__all__ = ["AppliedSteps"]


class AppliedSteps:
    """Counts the steps that the optimizers make; no device is read.

    Lightning counts the steps that its gradient scaler skips too. They never reach the optimizer,
    unless it is ``fused=True`` and looks at the flag on its device: such a step counts.

    Args:
        trainer: The Trainer, in a fit; steps are counted from now on.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._start = trainer.global_step
        self._made = 0
        known = all(isinstance(one, torch.optim.Optimizer) for one in trainer.optimizers)
        self._scaled = trainer.optimizers if loops.has_grad_scaler(trainer) and known else []
        self._handles = [one.register_step_post_hook(self._note) for one in self._scaled]

    def _note(self, *_: Any) -> None:
        self._made += 1

    @property
    def made(self) -> int:
        """The steps of all optimizers together."""
        return self._made if self._scaled else self._asked

    @property
    def skipped(self) -> int:
        """The steps that each of them should have made, and did not."""
        return max(self._asked - self.made, 0) // max(len(self._scaled), 1)

    @property
    def _asked(self) -> int:
        return self._trainer.global_step - self._start

    def close(self) -> None:
        """Leave the optimizers as they were; doing it twice does no harm."""
        for handle in self._handles:
            handle.remove()
