"""Find the weights that ``export()`` of a hook with checkpoints writes: those of its file."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch

from lightning_hooks.storage import verification
from lightning_hooks.storage.checkpoint_io import wait_for_writer, writes_for

__all__ = ["part_of", "require_present_weights", "weights_in"]


def weights_in(path: str, trainer: L.Trainer) -> dict[str, Any]:
    """Return the ``state_dict`` of a checkpoint: the weights that were validated.

    Args:
        path: The file.
        trainer: The Trainer that has written it; a ``CheckpointIO`` of the user's reads it, too.

    Raises:
        FileNotFoundError: if it is not there any more.
        DamagedCheckpointError: if it is not as it was written.
        ValueError: if there is more in it than tensors and plain types.
    """
    strategy = trainer.strategy
    if not writes_for(strategy):
        wait_for_writer(strategy)
        return dict(strategy.checkpoint_io.load_checkpoint(path)["state_dict"])
    try:
        return dict(verification.load(path)["state_dict"])
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"export() reads {path} without executing anything in it, and there is more than "
            "tensors and plain types in it, such as hyperparameters of a class of yours; as the "
            f"file is your own, write torch.load({path!r}, weights_only=False)['state_dict']"
        ) from error


def part_of(
    state: Mapping[str, Any], module: torch.nn.Module, model: torch.nn.Module
) -> dict[str, Any]:
    """Return the values of a part of a module, by the part's own keys.

    Args:
        state: The values, by the keys of the module's state dict.
        module: The module.
        model: A part of it. What it shares no tensor with is looked for by the part's name.

    Raises:
        ValueError: if the model is no part of the module.
    """
    if model is module:
        return dict(state)
    keys = {id(value): key for key, value in module.state_dict(keep_vars=True).items()}
    places = [name for name, one in module.named_modules() if one is model]
    own = model.state_dict(keep_vars=True)
    if not places and not any(id(value) in keys for value in own.values()):
        raise ValueError(
            f"export(model=...): the function has returned a {type(model).__name__} that is no "
            f"part of {type(module).__name__}, whose weights are in the checkpoint; give the "
            "model itself for its present weights"
        )
    prefix = f"{places[0]}." if places else ""
    found = {key: keys.get(id(value), prefix + key) for key, value in own.items()}
    return {key: state[there] for key, there in found.items() if there in state}


def require_present_weights(path: str, is_last: bool, hooks: list[Any]) -> None:
    """Check that a directory of shards has the weights that the module has, if it is the last.

    Args:
        path: The directory.
        is_last: Whether it is the last checkpoint, not the best.
        hooks: The hooks of the run.

    Raises:
        ValueError: if it has others: the best, or an average.
    """
    averages = [type(hook).__name__ for hook in hooks if hasattr(hook, "ema_state_dict")]
    if is_last and not averages:
        return
    own = f", or {averages[0]}.export() for the average of the last step" if averages else ""
    raise ValueError(
        f"export() cannot read {os.path.basename(path)}, a directory with a part of each rank: "
        "make a file of it with python -m lightning.pytorch.utilities.consolidate_checkpoint "
        f"{path}, or have one written (save_distributed_checkpoint=False, "
        f"state_dict_type='full'){own}"
    )
