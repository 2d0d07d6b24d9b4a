"""``AppliedSteps``: count the steps that reach an optimizer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import lightning as L
import torch

__all__ = ["AppliedSteps"]


class AppliedSteps:
    """Counts the steps that reach an optimizer, without reading the device.

    Lightning's ``global_step`` also counts a step skipped by the gradient scaler, and an
    ``optimizer_step`` of the module that only calls the closure; neither reaches the optimizer. The
    skipped step of a ``fused=True`` optimizer counts: such an optimizer reads the scaler's flag on
    the device. The steps of optimizers of other libraries are counted by ``global_step``.

    Args:
        trainer: The Trainer, in a fit; steps are counted from now on.
        fit: The stack at whose end counting stops.
    """

    def __init__(self, trainer: L.Trainer, fit: ExitStack | None = None) -> None:
        self._trainer = trainer
        self._start = trainer.global_step
        self._made = self._asked_before = 0
        self._is_open = False  # between the two hooks of a step, which may call another step()
        self._watches = ExitStack()
        if fit is not None:
            fit.callback(self.close)
        self._follow()

    def _follow(self) -> None:
        """Watch the Trainer's present optimizers."""
        self.close()
        self._optimizers = self._trainer.optimizers
        self._follows = all(isinstance(one, torch.optim.Optimizer) for one in self._optimizers)
        for one in self._optimizers if self._follows else ():
            self._watches.callback(one.register_step_pre_hook(self._begin).remove)
            self._watches.callback(one.register_step_post_hook(self._end).remove)

    def _begin(self, *_: Any) -> None:
        self._is_open = True

    def _end(self, *_: Any) -> None:
        self._made += self._is_open
        self._is_open = False

    @property
    def made(self) -> int:
        """The steps of all optimizers together."""
        asked = self._trainer.global_step - self._start
        if not self._follows or self._trainer.optimizers is not self._optimizers:
            self._made += asked - self._asked_before
            self._follow()
        self._asked_before = asked
        return self._made

    @property
    def skipped(self) -> int:
        """The skipped steps of each optimizer."""
        made = self.made
        return max(self._asked_before - made, 0) // max(len(self._optimizers), 1)

    def close(self) -> None:
        """Stop counting."""
        self._watches.close()
