"""A script of detectron2's shape: a model, a config, a subclass of ``DefaultTrainer``."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_hooks.dialects import detectron2 as d2


class Net(nn.Module):
    """Two losses in training, else a prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, data: Any) -> Any:
        if not self.training:
            return (self.weight * data).sum()
        return {"loss_a": (self.weight * data).sum() ** 2, "loss_b": self.weight.abs().sum()}


DATA = [torch.tensor([1.0, float(i % 3)]) for i in range(12)]


def by_hand(steps: int) -> torch.Tensor:
    """Train by a plain loop, the learning rate halved after each two steps."""
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 2, gamma=0.5)
    for data in DATA[:steps]:
        sgd.zero_grad()
        torch.stack(list(net(data).values())).sum().backward()
        sgd.step()
        schedule.step()
    return net.weight.detach()


class Untested(d2.DefaultTrainer):
    """A stranger's trainer without an evaluation."""

    @classmethod
    def build_model(cls, cfg: Any) -> Net:
        return Net()

    @classmethod
    def build_optimizer(cls, cfg: Any, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=cfg.SOLVER.BASE_LR, momentum=0.9)

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

    @classmethod
    def build_train_loader(cls, cfg: Any) -> Any:
        return DATA[cfg.FIRST :]


class Trainer(Untested):
    """A stranger's trainer."""

    @classmethod
    def test(cls, cfg: Any, model: Any) -> dict[str, float]:
        return {"norm": float(model.weight.detach().norm())}


def config(folder: Path, max_iter: int = 6, first: int = 0) -> Any:
    """Return the config."""
    names = types.SimpleNamespace
    return names(
        OUTPUT_DIR=str(folder),
        FIRST=first,
        MODEL=names(WEIGHTS=""),
        SOLVER=names(MAX_ITER=max_iter, CHECKPOINT_PERIOD=100, BASE_LR=0.05),
        TEST=names(EVAL_PERIOD=0),
    )
