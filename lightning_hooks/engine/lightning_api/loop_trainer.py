"""Make a Trainer for a loop that is not Lightning's."""

from __future__ import annotations

import warnings
from typing import Any

import lightning as L
import torch

__all__ = ["device_of", "loop_trainer"]


def device_of(model: torch.nn.Module) -> torch.device:
    """Return the device of a model's parameters; the CPU for a model without parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def loop_trainer(device: torch.device, **options: Any) -> L.Trainer:
    """Return a Trainer that prints, logs and saves nothing of its own, without a last epoch.

    Args:
        device: The device.
        options: Further arguments of the Trainer, which override the defaults here.
    """
    arguments = {
        "accelerator": device.type,
        "devices": 1 if device.type == "cpu" else [device.index or 0],
        "max_epochs": -1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "inference_mode": False,
        "num_sanity_val_steps": 0,
        **options,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*available but not used")  # the model's device counts
        return L.Trainer(**arguments)
