"""The phases of mmengine's loops, as Lightning's events call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api import data

__all__ = ["Epochs", "Evaluation", "Iterations", "goes_on"]


def goes_on(loop: Any, *, by_epoch: bool) -> bool:
    """Return whether a training loop has epochs, or iterations, left."""
    done, length = (loop.epoch, loop.max_epochs) if by_epoch else (loop.iter, loop.max_iters)
    return bool(done < length and not getattr(loop, "stop_training", False))


class Epochs:
    """mmengine's training by epoch, as Lightning's events.

    Args:
        runner: The runner.
        loop: Its ``EpochBasedTrainLoop``.
    """

    def __init__(self, runner: Any, loop: Any) -> None:
        self._runner = runner
        self.loop = loop

    def length(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.loop.dataloader)

    def batches(self) -> Iterator[Any]:
        """Return the batches of an epoch, of the loader that hooks have left."""
        return iter(self.loop.dataloader)

    def begin_epoch(self, trainer: L.Trainer) -> None:
        """Call ``before_train_epoch``, and iterate the loader that hooks may have replaced."""
        self._runner.call_hook("before_train_epoch")
        self._runner.model.train()
        if trainer.limit_train_batches == 1.0:
            data.set_train_length(trainer, self.length())
        data.renew_iterator(trainer)

    def run_iter(self, batch: Any, batch_idx: int) -> None:
        """Run one batch."""
        self.loop.run_iter(batch_idx, batch)

    def end_batch(self, trainer: L.Trainer) -> None:
        """Do nothing: mmengine validates between epochs."""

    def end_epoch(self, trainer: L.Trainer) -> None:
        """Call ``after_train_epoch``; validate where mmengine does; end the run."""
        loop = self.loop
        self._runner.call_hook("after_train_epoch")
        loop._epoch += 1
        loop._decide_current_val_interval()
        _validate(self._runner, loop, loop.epoch, loop.max_epochs)
        if not goes_on(loop, by_epoch=True):
            trainer.should_stop = True


class Iterations:
    """mmengine's training by iteration, one epoch of Lightning's.

    Args:
        runner: The runner.
        loop: Its ``IterBasedTrainLoop``.
    """

    def __init__(self, runner: Any, loop: Any) -> None:
        self._runner = runner
        self.loop = loop

    def length(self) -> int:
        """Return the number of iterations that are left."""
        return int(self.loop.max_iters - self.loop.iter)

    def batches(self) -> Iterator[Any]:
        """Yield the next batch of the iterator, which a hook may replace, in train mode."""
        while True:
            self._runner.model.train()
            yield next(self.loop.dataloader_iterator)

    def begin_epoch(self, trainer: L.Trainer) -> None:
        """Do nothing: the whole run is mmengine's one epoch."""

    def run_iter(self, batch: Any, batch_idx: int) -> None:
        """Run one batch."""
        self.loop.run_iter(batch)

    def end_batch(self, trainer: L.Trainer) -> None:
        """Validate where mmengine does; end the run."""
        loop = self.loop
        loop._decide_current_val_interval()
        _validate(self._runner, loop, loop.iter, loop.max_iters)
        if not goes_on(loop, by_epoch=False):
            trainer.should_stop = True

    def end_epoch(self, trainer: L.Trainer) -> None:
        """End the run."""
        trainer.should_stop = True


def _validate(runner: Any, loop: Any, done: int, length: int) -> None:
    """Validate if mmengine does after so many epochs, or iterations; also after the last."""
    is_due = done % loop.val_interval == 0 or done == length
    if runner.val_loop is not None and done >= loop.val_begin and is_due:
        runner.val_loop.run()


class Evaluation:
    """A pass of mmengine's ``ValLoop`` or ``TestLoop``.

    Args:
        runner: The runner.
        loop: The loop.
        stage: ``val`` or ``test``.
    """

    def __init__(self, runner: Any, loop: Any, stage: str) -> None:
        self._runner = runner
        self.loop = loop
        self._stage = stage
        self.metrics: dict[str, Any] = {}

    def finish(self) -> dict[str, Any]:
        """Evaluate, and call the point with the results; return them."""
        from mmengine.runner import loops

        self.metrics = self.loop.evaluator.evaluate(len(self.loop.dataloader.dataset))
        losses = getattr(self.loop, f"{self._stage}_loss", None)
        if losses:
            self.metrics.update(loops._parse_losses(losses, self._stage))
        self._runner.call_hook(f"after_{self._stage}_epoch", metrics=self.metrics)
        return self.metrics
