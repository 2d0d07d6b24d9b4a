"""What the tests share: tiny modules, loaders, a quiet Trainer and a hook that records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import Hook
from lightning_hooks.engine.points import STAGES

__all__ = ["Recorder", "TinyModule", "TinyNormModule", "make_loader", "make_trainer"]


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


class Recorder(Hook):
    """Records ``(point, epoch, iter, inner_iter, mode)`` of every call in ``calls``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int, str | None]] = []

    @property
    def points(self) -> list[str]:
        """The points called, in order."""
        return [call[0] for call in self.calls]

    def _record(self, point: str, runner: Any) -> None:
        self.calls.append((point, runner.epoch, runner.iter, runner.inner_iter, runner.mode))


def _recording(point: str) -> Any:
    def record(self: Recorder, runner: Any) -> None:
        self._record(point, runner)

    record.__name__ = point
    return record


for _point in STAGES:
    setattr(Recorder, _point, _recording(_point))
