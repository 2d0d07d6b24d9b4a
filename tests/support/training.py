"""Train tiny modules: ``fit``, the modules, the data, and a quiet Trainer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import HookAdapter
from support.forks import HAS_FORKS, start_server

__all__ = [
    "NoValidation",
    "TinyModule",
    "TinyNormModule",
    "fit",
    "loader_of",
    "make_loader",
    "make_trainer",
    "started_ranks",
    "two_ranks",
]


def make_loader(
    batches: int = 4, batch_size: int = 2, *, seed: int = 0, shuffle: bool = False
) -> DataLoader[Any]:
    """Return a loader of (4 numbers, 2 numbers) pairs, equal for equal seeds."""
    generator = torch.Generator().manual_seed(seed)
    n = batches * batch_size
    data = TensorDataset(
        torch.randn(n, 4, generator=generator), torch.randn(n, 2, generator=generator)
    )
    return DataLoader(data, batch_size=batch_size, shuffle=shuffle)


class TinyModule(L.LightningModule):
    """A linear layer trained by SGD, with equal weights for equal seeds.

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
        """Return the network; subclasses override this method."""
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


class NoValidation(TinyModule):
    """A TinyModule without a validation step."""

    validation_step = None  # type: ignore[assignment]


class Counted(TinyModule):
    """A module that logs the epoch number in validation, so each epoch is the best."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("epoch", float(self.current_epoch))


class TinyNormModule(TinyModule):
    """Two linear layers with BatchNorm in between, whose buffers change only in train mode."""

    def make_net(self) -> nn.Module:
        """Make the network."""
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def make_trainer(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    """Return a CPU Trainer without output and files.

    ``make_trainer(tmp_path, EMAHook(), max_epochs=2)``; ``callbacks=[...]`` is accepted too.
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


HOSTING = frozenset(inspect.signature(HookAdapter).parameters) - {"hooks"}


def fit(
    folder: Path,
    *hooks: Any,
    module: Any = TinyModule,
    batches: Any = 4,
    val: Any = 0,
    host: bool = False,
    callbacks: Sequence[Any] = (),
    ckpt_path: Any = None,
    **arguments: Any,
) -> L.Trainer:
    """Train a module with hooks; return the Trainer.

    Args:
        folder: The Trainer's root directory.
        hooks: Callbacks, or hooks for an adapter.
        module: The module or its class.
        batches: The number of training batches, or a loader.
        val: The number of validation batches, a loader, or a list with one entry per loader; 0: no
            validation.
        host: Whether to put the hooks in one adapter. An argument of ``HookAdapter`` implies True.
        callbacks: Callbacks to add after the hooks, outside the adapter.
        ckpt_path: The checkpoint to resume from.
        arguments: The arguments of :class:`HookAdapter` and of the Trainer.
    """
    own = {name: arguments.pop(name) for name in HOSTING & arguments.keys()}
    given = [HookAdapter(list(hooks), **own)] if host or own else list(hooks)
    given += callbacks
    arguments.setdefault("enable_checkpointing", any(isinstance(c, Checkpoint) for c in given))
    trainer = make_trainer(folder, *given, **arguments)
    module = module() if isinstance(module, type) else module
    trainer.fit(module, loader_of(batches), loader_of(val), ckpt_path=ckpt_path)
    return trainer


def loader_of(batches: Any) -> Any:
    """Return a loader for a number, None for 0, a list for a list, and any loader unchanged."""
    if isinstance(batches, list):
        return [loader_of(part) for part in batches]
    if isinstance(batches, int):
        return make_loader(batches) if batches else None
    return batches


def two_ranks(**options: Any) -> dict[str, Any]:
    """Return the Trainer's arguments for DDP in two processes without a GPU."""
    return {"devices": 2, "strategy": DDPStrategy(process_group_backend="gloo", **options)}


def started_ranks() -> DDPStrategy:
    """Return the strategy "ddp_spawn" with forked processes instead of new interpreters."""
    start_server()
    return DDPStrategy(start_method="forkserver" if HAS_FORKS else "spawn")
