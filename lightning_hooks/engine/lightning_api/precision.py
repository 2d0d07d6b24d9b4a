"""The precision, the gradient scaler and the kind of checkpoint of a Lightning strategy."""

from __future__ import annotations

import contextlib
from typing import Any

import lightning as L
from lightning.pytorch.plugins import DoublePrecision
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy

from lightning_hooks.engine.lightning_api.method_patch import setting

__all__ = [
    "convert_to_double",
    "grad_scaler",
    "has_grad_scaler",
    "state_stays_on_device",
    "weights_among_parts",
    "writes_directories",
]


def convert_to_double(trainer: L.Trainer) -> None:
    """Have the module of ``precision="64-true"`` in float64 before a file's weights are loaded.

    Lightning converts the module after the load, which rounds the weights to float32.
    """
    if isinstance(trainer.precision_plugin, DoublePrecision):
        trainer.precision_plugin.convert_module(trainer.lightning_module)


def writes_directories(strategy: Strategy) -> bool:
    """Whether each rank writes a part of a checkpoint, into a directory."""
    by_fsdp = getattr(strategy, "_state_dict_type", "full") == "sharded"
    return by_fsdp or bool(getattr(strategy, "_save_distributed_checkpoint", False))


def weights_among_parts(strategy: Strategy) -> str | None:
    """Return the name of the weights in a directory that Lightning's own strategy writes.

    Returns:
        The name; None for a strategy with one file, or a ``save_checkpoint`` of its own.
    """
    if writes_directories(strategy):
        for kind, name in ((FSDPStrategy, "model"), (ModelParallelStrategy, "state_dict")):
            if type(strategy).save_checkpoint is kind.save_checkpoint:
                return name
    return None


def state_stays_on_device(strategy: Strategy) -> contextlib.AbstractContextManager[None]:
    """Have ``ModelParallelStrategy`` give shards of weights and optimizers where they are.

    Lightning copies the shards into pageable memory of the CPU, which a GPU waits for.
    """
    if type(strategy) is not ModelParallelStrategy:
        return contextlib.nullcontext()
    # slow imports
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict,
        get_optimizer_state_dict,
    )

    model: Any = strategy.model
    return setting(
        strategy,
        lightning_module_state_dict=lambda: get_model_state_dict(model),
        optimizer_state=lambda optimizer: get_optimizer_state_dict(model, optimizer),
    )


def grad_scaler(trainer: L.Trainer) -> Any:
    """Return the Trainer's scaler of the loss; None without (``precision="32-true"``)."""
    return getattr(trainer.precision_plugin, "scaler", None)


def has_grad_scaler(trainer: L.Trainer) -> bool:
    """Whether the Trainer scales the loss (``precision="16-mixed"`` on a GPU)."""
    return grad_scaler(trainer) is not None
