"""Where checkpoints keep an average of the weights: ours, and those of Lightning's callbacks."""

from __future__ import annotations

from typing import Any

__all__ = ["KEY", "found_average", "write_average"]

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


def found_average(checkpoint: dict[str, Any], name: str | None) -> tuple[dict[str, Any], int]:
    """Return the average in a checkpoint, empty if there is none, and the steps it has seen.

    The file of Lightning's ``WeightAveraging`` and ``EMAWeightAveraging`` has the average in
    ``state_dict``; what the model is to load is then put there: the raw weights. Steps are
    returned for these files only, ours have them in the hook's state.

    Args:
        checkpoint: Lightning's dict; its ``state_dict`` may change.
        name: That of :func:`write_average`.

    Raises:
        ValueError: for a file of Lightning's, where the strategy has loaded it into the model.

    >>> file = {"state_dict": {"w": 1.5}, "current_model_state": {"w": 2.0},
    ...         "averaging_state": {"n_averaged": 3}}
    >>> found_average(file, None), file["state_dict"]
    (({'w': 1.5}, 3), {'w': 2.0})
    """
    if name is None and "current_model_state" in checkpoint and "averaging_state" in checkpoint:
        if "state_dict" not in checkpoint:
            raise ValueError(
                "the checkpoint is one of Lightning's WeightAveraging, whose 'state_dict' is the "
                "average: a strategy that shards has loaded that for the weights. Fit from it "
                "with the strategy 'ddp', and go on from what that saves"
            )
        average, raw = checkpoint["state_dict"], checkpoint.pop("current_model_state")
        checkpoint["state_dict"] = raw
        return dict(average), int(checkpoint["averaging_state"].get("n_averaged", 0))
    if name is None:
        return dict(checkpoint.get(KEY) or {}), 0
    return dict(checkpoint.get(f"{KEY}s", {}).get(name) or {}), 0
