"""Checks at the start of a fit: strategies, other averages, and a run too short for an average."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import ModelParallelStrategy

from lightning_hooks.engine.driver.collect import hooks_of
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.schedules.averages import share_of_beginning
from lightning_hooks.utils.warn import rank_zero_warn

if TYPE_CHECKING:
    from lightning_hooks.hooks.averaging.base import AveragingHook
    from lightning_hooks.hooks.averaging.ema import EMAHook

__all__ = ["check_device", "check_rivals", "check_strategy", "warn_of_young_average"]


def check_strategy(hook: AveragingHook, trainer: L.Trainer, resumes: bool = False) -> None:
    """Check for a strategy without changes to the parameters.

    Args:
        hook: The average.
        trainer: The Trainer.
        resumes: Whether the hook loads a checkpoint itself.

    Raises:
        ValueError: for a strategy with flattened or partitioned parameters, and with ``resumes``
            for a strategy with its own way to load checkpoints.
    """
    strategy = trainer.strategy
    shards = strategy.restore_checkpoint_after_setup
    if shards and not isinstance(strategy, ModelParallelStrategy):
        raise ValueError(
            f"{type(hook).__name__} does not work with {type(strategy).__name__}, whose "
            "parameters are not the module's own; use ModelParallelStrategy, with "
            "torch's fully_shard() in configure_model(), or the strategy 'ddp'"
        )
    if shards and resumes:
        raise ValueError(
            f"resume_from={hook.resume_from!r} does not work with {type(strategy).__name__}, "
            "which loads checkpoints itself; use Trainer.fit(ckpt_path=...)"
        )


def check_device(device: object) -> str | None:
    """Return the full name of a device; None stays None.

    Raises:
        ValueError: for a device unknown to torch.
    """
    try:
        # torch.device(3) has a name that torch.device refuses
        return None if device is None else str(torch.device(str(torch.device(device))))  # type: ignore[call-overload]
    except (RuntimeError, TypeError, ValueError):
        message = f"device must be None or a device's name, such as 'cuda', got {device!r}"
        raise ValueError(message) from None


def check_rivals(hook: AveragingHook, trainer: L.Trainer) -> None:
    """Refuse hooks with the swap of mmcv's EMAHook; warn of Lightning's averages.

    Args:
        hook: The Trainer's first average.
        trainer: The Trainer.

    Raises:
        ValueError: for a hook like mmcv's: each hook would take the other's average for the weights
            to train on with.
    """
    name = class_name(hook)
    for other in hooks_of(trainer):
        if hasattr(getattr(other, "foreign_hook", other), "_swap_ema_parameters"):
            raise ValueError(
                f"{name} and {class_name(other)} of {type(other).__module__} both swap the weights "
                "of the model for an average, and training would go on from the other's; leave one "
                "out"
            )
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, (WeightAveraging, StochasticWeightAveraging)):
            rank_zero_warn(
                f"{type(callback).__name__} and {name} both set the weights of the module to an "
                "average; leave one out"
            )


def warn_of_young_average(hook: EMAHook, runner: Runner) -> None:
    """Warn of a run too short for an ``EMAHook`` to leave the first weights.

    Args:
        hook: The ``EMAHook``.
        runner: The run.
    """
    steps: float = runner.max_optimizer_steps or 0
    trainer: Any = runner.trainer
    if steps == 0 or math.isinf(steps) or trainer.fast_dev_run:
        return
    begins = [(hook.begin_epoch, runner.max_epochs), (hook.begin_iter, runner.max_iters)]
    waited = max(begin / length if length and length > 0 else 0.0 for begin, length in begins)
    averaged = round(steps * max(0.0, 1 - waited))
    kept = share_of_beginning(hook.momentum, hook.warm_up, averaged, hook.interval)
    if averaged and kept > 0.5:
        runner.logger.warning(
            f"{class_name(hook)}(momentum={hook.momentum}, warm_up={hook.warm_up}) is validated "
            f"with an average that is too young: after the {averaged} optimizer steps of this run "
            f"{kept:.0%} of the average is still its first weights; a larger momentum, or a "
            "smaller warm_up, follows the model faster"
        )
