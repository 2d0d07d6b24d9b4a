"""``EMAHook``: an exponential moving average of the parameters, with which is validated."""

from __future__ import annotations

from typing import Any

from lightning_hooks import files
from lightning_hooks.hooks.averaging import AveragingHook
from lightning_hooks.registry import HOOKS

__all__ = ["EMAHook", "ema_momentum"]


def ema_momentum(step: int, momentum: float, warm_up: int) -> float:
    """Return the weight of the model in the average at a step.

    ``min(momentum, (1 + step) / (warm_up + step))``, mmcv's formula; where that is never below
    ``momentum`` (``momentum * warm_up <= 1``), ``momentum * min(1, (1 + step) / warm_up)``.

    Args:
        step: Optimizer steps before this one.
        momentum: The weight after the warm-up, in (0, 1).
        warm_up: Steps of smaller momentum.

    Note:
        Departure from mmcv: there the warm-up has no effect in the second case, the default one.

    >>> [ema_momentum(step, 0.5, 10) for step in (0, 2, 8, 20)]
    [0.1, 0.25, 0.5, 0.5]
    >>> [ema_momentum(step, 0.0625, 8) for step in (0, 3, 7, 20)]
    [0.0078125, 0.03125, 0.0625, 0.0625]
    """
    if momentum * warm_up > 1:
        return min(momentum, (1 + step) / (warm_up + step))
    return momentum * min(1.0, (1 + step) / max(warm_up, 1))


@HOOKS.register_module()
class EMAHook(AveragingHook):
    """Keeps an exponential moving average of the parameters and validates with it.

    ``average = (1 - m) * average + m * parameter`` after an optimizer step, from the weights at
    the start of the run on; ``m`` is :func:`ema_momentum` of ``1 - (1 - momentum) ** interval``.
    Buffers are not averaged: the average goes with the model's own BatchNorm statistics.

    How it is evaluated with, saved and exported (``apply_to``, ``export``) is that of every
    :class:`~lightning_hooks.hooks.averaging.AveragingHook`. A checkpoint without an average is
    started from with its weights.

    Args:
        momentum: The weight of the model in the average per step, in (0, 1).
        interval: Optimizer steps from one update to the next.
        warm_up: Optimizer steps with smaller momentum; 0 or 1 for none.
        resume_from: A checkpoint that the run goes on from (weights, average, counters and
            optimizer), as with ``Trainer.fit(ckpt_path=...)``, which it gives way to.

    Raises:
        ValueError: for values out of range; at the start of a fit, for a strategy that shards
            the parameters.

    Source: mmcv's ``EMAHook``.

    Note:
        Departures from mmcv: ``warm_up`` works (see :func:`ema_momentum`); an ``interval`` of k
        gives k times the weight, not ``momentum ** k``; optimizer steps are counted, not
        batches; the update is a lerp, closer to the exact value; after the run the model holds
        the raw weights, as all checkpoints do; the average is no buffer of the model.
    """

    _counted = 0

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        warm_up: int = 100,
        resume_from: str | None = None,
    ) -> None:
        if isinstance(momentum, bool) or not isinstance(momentum, (int, float)):
            raise TypeError(f"momentum must be a number, got {momentum!r}")
        if not 0 < momentum < 1:
            raise ValueError(f"momentum must be in (0, 1), got {momentum}")
        for name, value, least in (("interval", interval, 1), ("warm_up", warm_up, 0)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if resume_from is not None and not isinstance(resume_from, str):
            raise TypeError(f"resume_from must be a path or None, got {resume_from!r}")
        self.momentum = momentum
        self.interval = interval
        self.warm_up = warm_up
        self.resume_from = resume_from

    # -- the points ------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Start the average: from a checkpoint's, an earlier fit's, or the weights."""
        trainer = runner.trainer
        if trainer.strategy.restore_checkpoint_after_setup:
            raise ValueError(
                f"EMAHook does not work with {type(trainer.strategy).__name__}, which shards the "
                "parameters; use the strategy 'ddp'"
            )
        if self.resume_from is not None and self._loaded is None and runner.iter == 0:
            runner.resume(self.resume_from)
            self._load(trainer, files.load_torch(self.resume_from))
        self.start(runner.module, goes_on=runner.iter > 0)
        self._counted = trainer.global_step

    def after_train_iter(self, runner: Any) -> None:
        """Update the average, if there was an optimizer step."""
        done = runner.trainer.global_step
        if done == self._counted:
            return
        self._counted = done
        if self._steps % self.interval == 0 and self._average is not None:
            momentum = 1 - (1 - self.momentum) ** self.interval
            self._average.update(ema_momentum(self._steps, momentum, self.warm_up))
        self._steps += 1

    def state_arguments(self) -> dict[str, Any]:
        """The constructor arguments that tell two apart."""
        return {"momentum": self.momentum, "interval": self.interval, "warm_up": self.warm_up}
