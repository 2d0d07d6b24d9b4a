"""The shared job of the sister libraries and the dialects: a model, data, and recorded values."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from support.training import make_loader

EPOCHS, ITERATIONS = 3, 8


class BoxHead(nn.Module):
    """A head with the switches of several YOLOX hooks."""

    use_l1 = use_bbox_aux = use_aux_loss = False


class Named(nn.Module):
    """A preprocessor that stacks lists of samples and names the tensors of a batch."""

    def forward(self, data: Any, training: bool = False) -> dict[str, Any]:
        """Return the arguments of the model."""
        x, y = (torch.stack(list(part)) for part in data)
        return {"x": x, "y": y}


def build(model: nn.Module) -> None:
    """Add the attributes used by the hooks of all libraries to a model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.student = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model.teacher = copy.deepcopy(model.student)
    model.teacher.requires_grad_(False)
    model.data_preprocessor = Named()
    model.bbox_head = model.head = BoxHead()
    model.loss_lambda = 0.5  # type: ignore[assignment]
    model.distillation_stopped = False  # type: ignore[assignment]
    model.epochs = []  # type: ignore[assignment]
    model._next_scale_int = 0  # type: ignore[assignment]


def loss_of(model: Any, x: Any, y: Any) -> torch.Tensor:
    """Mean squared error of a batch, or of a list of samples."""
    x, y = (torch.stack(list(part)) for part in (x, y))
    return nn.functional.mse_loss(model.student(x), y)


class Model(nn.Module):
    """The model without the base class of a library."""

    def __init__(self) -> None:
        super().__init__()
        build(self)

    def forward(self, x: Any, y: Any) -> torch.Tensor:
        """Return the loss."""
        return loss_of(self, x, y)

    def set_epoch(self, epoch: int) -> None:
        """Record the call."""
        self.epochs.append(epoch)


def loader(batches: int, seed: int = 0, samples: bool = False) -> DataLoader[Any]:
    """Return a loader; with ``samples``, a sampler draws another order in each epoch."""
    made = make_loader(batches, 4, seed=seed)
    data: Any = made.dataset
    data.metainfo = {"classes": ("a", "b")}
    data.pipeline, data.skipped = ["old"], []
    data.dataset = SimpleNamespace(pipeline=SimpleNamespace(transforms=[]))
    data.update_skip_type_keys = data.skipped.extend
    if not samples:
        return made
    return DataLoader(data, 4, sampler=DistributedSampler(data, 1, 0, shuffle=True, seed=3))


def weights(model: nn.Module) -> float:
    """Return the sum of all parameters and buffers."""
    state = model.state_dict().values()
    return float(sum(value.double().abs().sum() for value in state))


def plain(value: Any) -> Any:
    """Return a value in JSON types."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(type(value))
