"""Checks of an average: its arguments at construction, and the run at the start."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.hosted import class_name, foreign
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.releases import is_weight_averaging
from lightning_hooks.utils.arguments import check_number, shown
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "check_device",
    "check_momentum",
    "check_rivals",
    "check_strategy",
    "require_device",
]


def check_momentum(value: Any) -> None:
    """Raise unless the value is a number in (0, 1).

    Raises:
        TypeError: if it is no number.
        ValueError: if it is out of range.
    """
    check_number("momentum", value)
    if not 0 < value < 1:
        raise ValueError(f"momentum must be in (0, 1), got {shown(value)}")


def check_strategy(hook: Hook, trainer: L.Trainer, resume_from: str | None) -> None:
    """Check for a strategy whose parameters can be averaged.

    Args:
        hook: The average.
        trainer: The Trainer.
        resume_from: The checkpoint that the hook loads itself.

    Raises:
        ValueError: for DeepSpeed and other strategies with partitioned parameters, and with
            ``resume_from`` for a strategy with its own way to load checkpoints.
    """
    strategy = trainer.strategy
    shards = strategy.restore_checkpoint_after_setup
    name = type(strategy).__name__
    if shards and not isinstance(strategy, (FSDPStrategy, ModelParallelStrategy)):
        raise ValueError(
            f"{type(hook).__name__} does not work with {name}, whose parameters are not the "
            "module's own; use ModelParallelStrategy, with torch's fully_shard() in "
            "configure_model(), 'fsdp' or 'ddp'; docs/extending.md has an average for DeepSpeed"
        )
    if shards and resume_from is not None:
        raise ValueError(
            f"resume_from={shown(resume_from)} does not work with {name}, which loads "
            "checkpoints itself; use Trainer.fit(ckpt_path=...)"
        )


def check_device(device: object) -> str | None:
    """Return the full name of a device; None stays None.

    Raises:
        ValueError: for a device unknown to torch.
    """
    try:
        # torch.device(3) has a name that torch.device refuses
        name = None if device is None else str(torch.device(str(torch.device(device))))  # type: ignore[call-overload]
    except (RuntimeError, TypeError, ValueError):
        name = "meta"
    if name == "meta":  # it holds no values
        message = f"device must be None or a device's name, such as 'cuda', got {shown(device)}"
        raise ValueError(message)
    return name


def require_device(hook: Hook, device: str | None) -> None:
    """Raise ValueError if a device is not there."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{class_name(hook)}: device={device!r} is not there: {error}") from None


def check_rivals(hook: Hook, trainer: L.Trainer) -> None:
    """Refuse hooks with the swap of mmcv's EMAHook; warn of equal and of Lightning's averages.

    Args:
        hook: The Trainer's first average.
        trainer: The Trainer.

    Raises:
        ValueError: for a hook like mmcv's: each hook would take the other's average for the weights
            to train on with.
    """
    name = class_name(hook)
    hooks = Driver.of(trainer).roster.hooks
    averages = natives_with("_averages_weights", hooks)
    arguments = [*map(_arguments, averages)] if len(averages) > 1 else []
    for kind, _ in [given for i, given in enumerate(arguments) if given in arguments[:i]]:
        line = "two %ss of equal arguments keep equal averages; leave one out"
        Driver.of(trainer).runner.logger.warning(line, kind.__name__)
    for other in hooks:
        if hasattr(foreign(other), "_swap_ema_parameters"):
            raise ValueError(
                f"{name} and {class_name(other)} of {type(foreign(other)).__module__} both swap "
                "the weights of the model for an average, and training would go on from the "
                "other's; leave one out"
            )
    for callback in callbacks_of(trainer):
        if is_weight_averaging(callback) or isinstance(callback, StochasticWeightAveraging):
            rank_zero_warn(
                f"{type(callback).__name__} and {name} both set the weights of the module to an "
                "average; leave one out"
            )


def _arguments(hook: Any) -> tuple[type, dict[str, Any]]:
    """Return the class of an average and its arguments."""
    state = {
        name: value
        for name, value in hook.__getstate__().items()
        if name not in ("_hosted_at", "_handover")
    }
    return type(hook), state
