"""Run recorded cases of learning rates and momenta in real Trainers."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from lightning_hooks import Hook
from support import training
from support.golden import recorded

__all__ = ["CASES", "Optimizers", "ValueRecorder", "case_of", "fit"]

CASES = recorded("schedules")["cases"]


class ValueRecorder(Hook):
    """Records the learning rate or momentum of every group at the start of each iteration."""

    _reads_step = False

    def __init__(self, key: str = "lr") -> None:
        self.key = key
        self.values: list[Any] = []

    def before_train_iter(self, runner: Any) -> None:
        """Record the values."""
        self.values.append(runner.current_lr() if self.key == "lr" else runner.current_momentum())


class SaveAndStop(Callback):
    """Saves a checkpoint after the given step and stops the run."""

    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


class Optimizers(L.LightningModule):
    """A module with drawn optimizers: ``name``, ``kind``, and ``lr`` and ``momentum`` by group.

    Only hooks change the options of the optimizers.
    """

    def __init__(self, drawn: list[dict[str, Any]]) -> None:
        super().__init__()
        self.drawn = drawn
        self.automatic_optimization = len(drawn) == 1
        self.optimizer_names = [one["name"] for one in drawn] if drawn[0].get("name") else None
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(1)) for one in drawn for _ in one["lr"]
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor | None:
        """Return a loss, or step the first of several optimizers for Lightning's step count."""
        if self.automatic_optimization:
            return sum(weight for weight in self.weights)  # type: ignore[return-value]
        self.optimizers()[0].step()
        return None

    def configure_optimizers(self) -> Any:
        """Create the optimizers."""
        weights = iter(self.weights)
        return [self.make(one, weights) for one in self.drawn]

    def make(self, one: dict[str, Any], weights: Any) -> torch.optim.Optimizer:
        """Create one optimizer."""
        groups: list[dict[str, Any]] = [{"params": [next(weights)], "lr": lr} for lr in one["lr"]]
        for group, momentum in zip(groups, one.get("momentum", []), strict=False):
            if one.get("kind") == "Adam":
                group["betas"] = (momentum, 0.999)
            else:
                group["momentum"] = momentum
        return getattr(torch.optim, one.get("kind", "SGD"))(groups)  # type: ignore[no-any-return]


def fit(tmp_path: Path, case: dict[str, Any], **kwargs: Any) -> list[list[float]]:
    """Train as the recorder did, and return the values of every iteration."""
    recorder = ValueRecorder(case["key"])
    by_epoch = case["runner"] == "EpochBasedRunner"
    if by_epoch or len(case["optimizers"]) > 1:  # several optimizers: Lightning counts each's steps
        limit = {"max_epochs": case["max_iters"] // case["iters_per_epoch"]}
    else:
        limit = {"max_steps": case["max_iters"]}
    options = {"by_epoch": by_epoch, "batches": case["iters_per_epoch"], **limit, **kwargs}
    module = Optimizers(case["optimizers"])
    training.fit(tmp_path, case["hook"], (recorder, "LOWEST"), module=module, **options)
    return [list(chain(*row.values())) if isinstance(row, dict) else row for row in recorder.values]


def case_of(key: str = "lr", base: float = 1.0, kind: str = "SGD", **hook: Any) -> dict[str, Any]:
    """Return a case of 2 epochs of 5 batches with one parameter group."""
    return {
        "key": key,
        "runner": "EpochBasedRunner",
        "max_epochs": 2,
        "max_iters": 10,
        "iters_per_epoch": 5,
        "optimizers": [
            {"name": None, "kind": kind, "lr": [base], "momentum": [base] * (key == "momentum")}
        ],
        "hook": hook,
    }
