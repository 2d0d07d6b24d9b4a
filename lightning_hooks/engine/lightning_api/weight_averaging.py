"""The layout of checkpoints with an average, written and read by Lightning's ``WeightAveraging``.

=======================  ====================================================================
key in a checkpoint      value
=======================  ====================================================================
``state_dict``           the average: the validated weights
``current_model_state``  the raw weights, to train on with
``averaging_state``      ``n_averaged``, the number of updates
=======================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.strategies import ModelParallelStrategy

from lightning_hooks.utils import dtensors

__all__ = ["RAW", "STATE", "has_average", "raw_weights", "restore_raw_weights"]

RAW, STATE = "current_model_state", "averaging_state"
"""The keys of the raw weights, and of the average's counters."""


def has_average(checkpoint: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's ``state_dict`` is an average, with the raw weights beside it."""
    return RAW in checkpoint and STATE in checkpoint


def raw_weights(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the raw weights, to train on with.

    >>> raw_weights({"state_dict": {"w": 1.5}, "current_model_state": {"w": 2.0},
    ...              "averaging_state": {"n_averaged": 3}})
    {'w': 2.0}
    >>> raw_weights({"state_dict": {"w": 2.0}})
    {'w': 2.0}
    """
    return dict(checkpoint[RAW] if has_average(checkpoint) else checkpoint["state_dict"])


def restore_raw_weights(trainer: L.Trainer, checkpoint: dict[str, Any]) -> bool:
    """Have the module load the raw weights in place of the average.

    Lightning's own averaging callbacks restore raw weights themselves.

    Args:
        trainer: The Trainer, loading the checkpoint.
        checkpoint: Lightning's dict, changed.

    Returns:
        Whether the checkpoint had an average.

    Raises:
        ValueError: if the strategy has already loaded the average into sharded parameters.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    if not has_average(checkpoint) or any(isinstance(c, WeightAveraging) for c in callbacks):
        return False
    raw = checkpoint.pop(RAW)
    if "state_dict" in checkpoint:
        checkpoint["state_dict"] = raw
    elif isinstance(trainer.strategy, ModelParallelStrategy):
        dtensors.load_whole(trainer.lightning_module, raw)
    else:
        raise ValueError(
            f"the checkpoint's 'state_dict' is an average, and {type(trainer.strategy).__name__} "
            "has loaded the average as weights. Fit from the checkpoint with the strategy 'ddp' "
            "and without an averaging hook, and resume from a checkpoint of that fit"
        )
    return True
