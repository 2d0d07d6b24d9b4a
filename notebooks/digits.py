"""What the notebooks share: the demo's data and net, and a Trainer that says nothing itself."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from demo import DigitNet as DigitNet
from demo import make_loaders as make_loaders

__all__ = ["DigitNet", "make_loaders", "make_trainer", "work_in_a_new_folder"]


def make_trainer(*callbacks: L.Callback, **options: Any) -> L.Trainer:
    """Make a Trainer on the CPU: no logger, checkpoints or progress bar of Lightning's own.

    Args:
        callbacks: The hooks, and Lightning's own callbacks.
        options: More for the Trainer, or other values of what is said here.
    """
    for name in ("lightning.pytorch", "lightning_hooks"):  # ours would print the list of hooks
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "The '.*_dataloader' does not have many workers")
    warnings.filterwarnings("ignore", "The number of training batches .* is smaller than")
    warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)  # Lightning's
    torch.set_num_threads(1)  # more would wait for each other: the net is that small
    L.seed_everything(0, verbose=False)
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return L.Trainer(**{**quiet, **options}, callbacks=list(callbacks))


def work_in_a_new_folder() -> None:
    """Make an empty folder the current one: files that are written there can be imported.

    Commands that a notebook runs from there find what the notebook finds.
    """
    here = str(Path(__file__).parent)
    os.chdir(tempfile.mkdtemp())
    sys.path[:0] = ["", here]
    for name, place in (("PYTHONPATH", here), ("PATH", str(Path(sys.executable).parent))):
        os.environ[name] = os.pathsep.join([place, *filter(None, [os.environ.get(name)])])
