"""Checkpoint directories, with a part of each rank."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.load import _load_distributed_checkpoint

from lightning_hooks.storage import state_parts

__all__ = ["consolidated", "read_checkpoint"]


def consolidated(path: Path) -> dict[str, Any]:
    """Return a checkpoint directory as consolidated by Lightning's ``consolidate_checkpoint``."""
    whole = _load_distributed_checkpoint(path)
    whole["state_dict"] = whole.pop("model", None) or whole.pop("state_dict")
    numbers = sorted(int(key[10:]) for key in whole if re.fullmatch(r"optimizer_\d+", key))
    whole["optimizer_states"] = [whole.pop(f"optimizer_{number}") for number in numbers]
    return whole


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the whole contents of a file, or of a directory."""
    if path.is_file():
        loaded: dict[str, Any] = torch.load(path, weights_only=True)
        return loaded
    whole = consolidated(path)
    state_parts.from_parts(whole, whole["lightning_hooks"], lambda: ("", {}))
    return whole
