"""Read and write averages in checkpoints: ours, and those of Lightning's callbacks."""

from __future__ import annotations

from typing import Any

from lightning_hooks.hooks.averaging.module_average import ModuleAverage
from lightning_hooks.utils import dtensors

__all__ = ["KEY", "read_average", "restore_raw_weights", "write_average"]

KEY = "ema_state_dict"


def write_average(checkpoint: dict[str, Any], average: dict[str, Any], name: str | None) -> None:
    """Put an average into a checkpoint.

    Args:
        checkpoint: Lightning's dict, changed.
        average: The average, by the keys of the state dict.
        name: None for a Trainer's first average, a key of its own for each other.
    """
    if name is None:
        checkpoint[KEY] = average
    else:
        checkpoint.setdefault(f"{KEY}s", {})[name] = average


def read_average(checkpoint: dict[str, Any], name: str | None) -> tuple[dict[str, Any], int]:
    """Return the average in a checkpoint, empty if there is none, and its optimizer steps.

    A checkpoint of Lightning's ``WeightAveraging`` and ``EMAWeightAveraging`` has the average in
    ``state_dict``; the raw weights are put there instead, for the model to load. Steps are
    returned for these only; those of our averages are in the hook's state.

    Args:
        checkpoint: Lightning's dict; its ``state_dict`` may change.
        name: That of :func:`write_average`.

    Raises:
        ValueError: for a file of Lightning's, where the strategy has loaded it into the model.

    >>> file = {"state_dict": {"w": 1.5}, "current_model_state": {"w": 2.0},
    ...         "averaging_state": {"n_averaged": 3}}
    >>> read_average(file, None), file["state_dict"]
    (({'w': 1.5}, 3), {'w': 2.0})
    """
    if name is not None:
        return dict(checkpoint.get(f"{KEY}s", {}).get(name) or {}), 0
    if "current_model_state" not in checkpoint or "averaging_state" not in checkpoint:
        return dict(checkpoint.get(KEY) or {}), 0
    if "state_dict" not in checkpoint:
        raise ValueError(
            "the checkpoint is one of Lightning's WeightAveraging, whose 'state_dict' is the "
            "average: a strategy that shards has loaded that for the weights. Fit from it "
            "with the strategy 'ddp', and resume from what that saves"
        )
    average, raw = checkpoint["state_dict"], checkpoint.pop("current_model_state")
    checkpoint["state_dict"] = raw
    return dict(average), int(checkpoint["averaging_state"].get("n_averaged", 0))


def restore_raw_weights(state: dict[str, Any], average: ModuleAverage) -> None:
    """Replace the average by the raw weights in a state dict saved while it was swapped in.

    Args:
        state: The ``state_dict`` of a checkpoint: parts of sharded parameters for a directory,
            else the whole on rank 0.
        average: The average.
    """
    raw = average.raw_state_dict()
    if dtensors.any_sharded(state.values()):
        raw = {dtensors.uncompiled_key(key): value for key, value in raw.items()}
    else:
        raw = dtensors.gathered(raw)
    state.update({key: value for key, value in raw.items() if key in state})
