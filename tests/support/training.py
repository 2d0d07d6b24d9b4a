"""Trains tiny modules: the modules, their data, and a quiet Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["NoValidation", "TinyModule", "TinyNormModule", "make_loader", "make_trainer"]


def make_loader(
    batches: int = 4, batch_size: int = 2, *, seed: int = 0, shuffle: bool = False
) -> DataLoader[Any]:
    """Make a loader of (4 numbers, 2 numbers) pairs, the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    n = batches * batch_size
    data = TensorDataset(
        torch.randn(n, 4, generator=generator), torch.randn(n, 2, generator=generator)
    )
    return DataLoader(data, batch_size=batch_size, shuffle=shuffle)


class TinyModule(L.LightningModule):
    """One linear layer trained by SGD; the same weights for the same seed.

    ``losses`` has the loss of every training step; ``train_loss`` and ``val_loss`` are logged.
    """

    def __init__(self, lr: float = 0.1, momentum: float = 0.9, seed: int = 0) -> None:
        super().__init__()
        self.lr, self.momentum = lr, momentum
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = self.make_net()
        self.losses: list[float] = []

    def make_net(self) -> nn.Module:
        """Make the network; subclasses have their own."""
        return nn.Linear(4, 2)

    def loss(self, batch: Any) -> torch.Tensor:
        """Mean squared error of a batch."""
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Log and return the loss."""
        loss = self.loss(batch)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Log and return the loss."""
        loss = self.loss(batch)
        self.log("val_loss", loss, batch_size=len(batch[0]))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=self.momentum)


class TinyNormModule(TinyModule):
    """Two linear layers with BatchNorm between them: buffers that move in train mode only."""

    def make_net(self) -> nn.Module:
        """Make the network."""
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def make_trainer(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    """Make a Trainer on the CPU that prints and writes nothing of its own.

    ``make_trainer(tmp_path, EMAHook(), max_epochs=2)``; ``callbacks=[...]`` may be given too.
    """
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1 if "max_steps" not in kwargs else -1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
    }
    given = [*callbacks, *kwargs.pop("callbacks", [])]
    return L.Trainer(**{**quiet, **kwargs}, callbacks=given)


class NoValidation(TinyModule):
    """Has no validation step."""

    validation_step = None  # type: ignore[assignment]
