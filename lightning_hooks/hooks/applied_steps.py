"""Optimizer steps that were made: a gradient scaler leaves some out."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks import loops

__all__ = ["AppliedSteps"]


class AppliedSteps:
    """Says whether an optimizer has stepped since it was last asked; no device is read.

    Lightning counts the steps that its gradient scaler skips. They never reach the optimizer, but
    where that is a fused one, which looks at the flag on the device: there they count here too.

    Args:
        trainer: The Trainer, in a fit.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._made = 0
        scaled = loops.has_grad_scaler(trainer)
        known = all(isinstance(one, torch.optim.Optimizer) for one in trainer.optimizers)
        self._handles = [
            optimizer.register_step_post_hook(self._note)
            for optimizer in (trainer.optimizers if scaled and known else ())
        ]
        self._seen = self._count

    @property
    def _count(self) -> int:
        return self._made if self._handles else self._trainer.global_step

    def _note(self, *args: Any) -> None:
        self._made += 1

    def any_new(self) -> bool:
        """Whether there was a step since the last call."""
        seen, self._seen = self._seen, self._count
        return self._seen != seen

    def close(self) -> None:
        """Leave the optimizers as they were; doing it twice does no harm."""
        for handle in self._handles:
            handle.remove()
