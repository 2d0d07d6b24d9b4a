"""Count the optimizer steps of a run: made, to be made, and skipped by a gradient scaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from lightning_hooks.engine.lightning_api import precision

__all__ = [
    "AppliedSteps",
    "InSteps",
    "batches_of_step",
    "start_at",
    "steps_done",
    "steps_of",
    "steps_of_run",
]


def batches_of_step(runner: Any, epoch: int = 0) -> int:
    """Return the number of batches per optimizer step in the current epoch.

    If hooks own the steps, the first ``cumulative_iters`` of a hook.
    """
    if runner.hooks_step:
        return int(max((getattr(hook, "cumulative_iters", 1) for hook in runner.hooks), default=1))
    for callback in runner.trainer.callbacks:
        if isinstance(callback, GradientAccumulationScheduler):
            return int(callback.get_accumulate_grad_batches(epoch))
    return int(runner.trainer.accumulate_grad_batches)


def steps_done(runner: Any) -> int:
    """Return the optimizer steps made, per optimizer.

    Derived from Lightning's ``global_step``, which checkpoints restore.
    """
    return int(runner.trainer.global_step // _counted(runner) + runner.steps_before)


def _counted(runner: Any) -> int:
    """Return the number of optimizers in Lightning's sum of steps."""
    automatic = runner.module.automatic_optimization
    return 1 if automatic else max(len(runner.trainer.optimizers), 1)


def start_at(runner: Any, checkpoint: Mapping[str, Any]) -> None:
    """Go on counting from a file loaded by a hook; mmcv's files hold iterations only."""
    if "global_step" in checkpoint:
        steps = checkpoint["global_step"] // _counted(runner)
    else:
        epochs, rest = 0, int(checkpoint["meta"]["iter"])
        batches = runner.trainer.num_training_batches
        if runner.module.automatic_optimization and batches != float("inf"):
            epochs, rest = divmod(rest, int(batches))
        steps = steps_of(runner, epochs) if epochs else 0
        steps += rest // batches_of_step(runner, epochs)
    runner.steps_before += steps - runner.optimizer_steps


def steps_of(runner: Any, epochs: int) -> int:
    """Return the optimizer steps of the run's first epochs.

    Raises:
        ValueError: if the loader has no length, or the module steps by itself.
    """
    batches = runner.trainer.num_training_batches
    if batches == float("inf"):
        raise ValueError("steps of an epoch are counted: the training loader needs a length")
    if runner.hooks_step:
        return _steps_of_hooks(runner, epochs * int(batches))
    if not runner.module.automatic_optimization:
        raise ValueError("steps of an epoch are counted, and only the module knows when it steps")
    return sum(-(-int(batches) // batches_of_step(runner, epoch)) for epoch in range(epochs))


def _steps_of_hooks(runner: Any, iterations: int) -> int:
    """Return the number of optimizer steps made by hooks in a number of iterations."""
    each, batches = batches_of_step(runner), runner.trainer.num_training_batches
    owners = [hook for hook in runner.hooks if hasattr(hook, "cumulative_iters")]
    if batches == float("inf") or not any(getattr(hook, "by_epoch", False) for hook in owners):
        return -(-iterations // each)
    epochs, rest = divmod(iterations, int(batches))
    return epochs * -(-int(batches) // each) + -(-rest // each)


def steps_of_run(runner: Any) -> int | None:
    """Return the optimizer steps of the whole run, None if unknown.

    ==============================  ==========================================================
    steps are made by               number of steps
    ==============================  ==========================================================
    Lightning                       ``max_epochs`` times the steps of an epoch; the last batch of
                                    an epoch always ends a step; at most ``max_steps``
    hooks that own backward         ``runner.max_iters`` by ``cumulative_iters``, rounded up;
                                    with the hook's ``by_epoch`` rounded up per epoch
    the module                      ``max_steps``, by the number of optimizers
    ==============================  ==========================================================
    """
    trainer = runner.trainer
    if runner.hooks_step:
        iterations: int | None = runner.max_iters
        return None if iterations is None else _steps_of_hooks(runner, iterations)
    if not runner.module.automatic_optimization:
        return None if trainer.max_steps < 0 else -(-trainer.max_steps // _counted(runner))
    limits = [] if trainer.max_steps < 0 else [int(trainer.max_steps)]
    epochs = trainer.max_epochs
    if epochs is not None and epochs >= 0 and trainer.num_training_batches != float("inf"):
        limits.append(steps_of(runner, epochs))
    return min(limits, default=None)


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
        """Remove the counters from the optimizers; a second call changes nothing."""
        for handle in self._handles:
            handle.remove()
