"""Bad batches, and modules for training on bad batches."""

from __future__ import annotations

from typing import Any

import lightning as L
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from lightning_hooks import TrainStepModule
from lightning_hooks.hooks.invalid_loss.check import InvalidLossError
from support.training import TinyModule, TinyNormModule

__all__ = [
    "GOOD",
    "GRADIENTS",
    "INPUT",
    "LOSS",
    "SPIKE",
    "BadModule",
    "NormModel",
    "NormModule",
    "Spoiled",
    "batches",
    "failing",
    "loader",
    "norm_module",
    "spoiled",
    "train_step_module",
]

GOOD, LOSS, GRADIENTS, INPUT, SPIKE = 0.0, 1.0, 2.0, 3.0, 4.0


def batches(n: int, bad: dict[int, float] | None = None) -> list[Any]:
    """Return (inputs, targets, kind) batches; ``bad`` maps an index to the kind of bad batch."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for index in range(n):
        x, y = torch.randn(4, 4, generator=generator), torch.randn(4, 2, generator=generator)
        kind = (bad or {}).get(index, GOOD)
        if kind == INPUT:
            x = x * float("nan")
        made.append((x, y, torch.tensor(kind)))
    return made


def loader(made: list[Any]) -> DataLoader[Any]:
    """Make a loader of ready batches."""
    return DataLoader(made, batch_size=None)  # type: ignore[arg-type]


def spoiled(loss: torch.Tensor, kind: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch by kind: a bad loss, or a loss with bad gradients."""
    if kind == LOSS:
        return loss + float("nan")
    if kind == GRADIENTS:
        return loss + (weight.sum() * 0).abs().sqrt()  # 0 with an infinite derivative
    return loss * 1000 if kind == SPIKE else loss


class BadModule(TinyModule):
    """A module for bad batches with any optimizer; ``seen`` counts the batches."""

    def __init__(self, make: Any = None) -> None:
        super().__init__()
        self.make = make or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        self.seen = 0
        self.validation_step = None  # type: ignore[assignment]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y, kind = batch
        self.seen += 1
        loss = nn.functional.mse_loss(self.net(x), y)
        return spoiled(loss, kind, next(self.net.parameters()))

    def configure_optimizers(self) -> Any:
        return self.make(self.parameters())


class NormModule(BadModule):
    """A BadModule with BatchNorm."""

    make_net = TinyNormModule.make_net


class NormModel(nn.Module):
    """A model with mmcv's interface for bad batches."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = TinyNormModule.make_net(self)  # type: ignore[arg-type]

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        x, y, kind = data
        loss = spoiled(nn.functional.mse_loss(self.net(x), y), kind, next(self.net.parameters()))
        return {"loss": loss, "log_vars": {"loss": loss.detach()}, "num_samples": len(x)}


def norm_module(make: Any = None) -> NormModule:
    """Make a LightningModule with BatchNorm."""
    return NormModule(make)


def train_step_module(make: Any = None) -> TrainStepModule:
    """Make a TrainStepModule with BatchNorm."""
    model = NormModel()
    make = make or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    module = TrainStepModule(model, make(model.parameters()))
    module.validation_step = None  # type: ignore[assignment, method-assign]
    return module


class Spoiled(TinyModule):
    """A module with a bad loss in a single step, which returns and logs the parts of the loss."""

    def __init__(self, step: int, value: float = float("nan"), validates: bool = False) -> None:
        super().__init__(lr=0.0)
        self.step, self.value, self.batches = step, value, 0
        if not validates:
            self.validation_step = None  # type: ignore[assignment]

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        bad = self.value if self.batches == self.step else 0.0
        self.batches += 1
        box = self.loss(batch) * 0 + bad
        classes = self.loss(batch)
        self.log("logged_box", box)
        return {"loss": classes + box, "loss_cls": classes.detach(), "loss_box": box.detach()}


def failing(trainer: L.Trainer, module: L.LightningModule, *loaders: Any) -> str:
    """Fit and return the error's message."""
    with pytest.raises(InvalidLossError) as error:
        trainer.fit(module, *loaders)
    return str(error.value)
