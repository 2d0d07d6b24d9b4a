"""Optimizer steps as iterations, and steps skipped by a gradient scaler."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api import precision

__all__ = ["AppliedSteps", "InSteps"]


class InSteps:
    """A view of a runner with optimizer steps as iterations; other attributes are the runner's.

    >>> from types import SimpleNamespace
    >>> runner = SimpleNamespace(iter=9, epoch=1, optimizer_steps=3, max_optimizer_steps=4)
    >>> seen = InSteps(runner)
    >>> seen.iter, seen.max_iters, seen.epoch
    (3, 4, 1)
    """

    def __init__(self, runner: Any, skipped: int = 0) -> None:
        object.__setattr__(self, "_runner", runner)
        object.__setattr__(self, "_skipped", skipped)

    @property
    def iter(self) -> int:
        """Optimizer steps made before the current batch's step."""
        return int(self._runner.optimizer_steps - self._skipped)

    @property
    def max_iters(self) -> int | None:
        """Optimizer steps to make, None if unknown."""
        limit: int | None = self._runner.max_optimizer_steps
        return limit

    _iter, _max_iters = iter, max_iters

    def __getattr__(self, name: str) -> Any:
        if name == "_runner":  # a copy in the making has none
            raise AttributeError(name)
        return getattr(self._runner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._runner, name, value)


class AppliedSteps:
    """Count the optimizers' steps, without reading the device.

    Lightning also counts steps skipped by the gradient scaler. A skipped step never reaches the
    optimizer, except a ``fused=True`` optimizer, which reads the flag on the device: the step
    counts.

    Args:
        trainer: The Trainer, in a fit; steps are counted from now on.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._start = trainer.global_step
        self._made = 0
        known = all(isinstance(one, torch.optim.Optimizer) for one in trainer.optimizers)
        self._scaled = trainer.optimizers if precision.has_grad_scaler(trainer) and known else []
        self._handles = [one.register_step_post_hook(self._note) for one in self._scaled]

    def _note(self, *_: Any) -> None:
        self._made += 1

    @property
    def made(self) -> int:
        """The steps of all optimizers together."""
        return self._made if self._scaled else self._asked

    @property
    def skipped(self) -> int:
        """The skipped steps of each optimizer."""
        return max(self._asked - self.made, 0) // max(len(self._scaled), 1)

    @property
    def _asked(self) -> int:
        return self._trainer.global_step - self._start

    def close(self) -> None:
        """Remove the counters from the optimizers."""
        for handle in self._handles:
            handle.remove()
