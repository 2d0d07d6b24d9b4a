"""Train, and die in a validation: by a real SIGKILL, or by an error."""

from __future__ import annotations

import os
import random
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, EvalHook, TextLoggerHook
from support.training import TinyNormModule, fit, make_loader

__all__ = ["DiedError", "Validated", "last_state", "train"]

EPOCHS, BATCHES = 3, 4


class DiedError(Exception):
    """Stands for the end of the process."""


class Validated(TinyNormModule):
    """Random in training and validation; a scheduler needs the value of the latter.

    ``seen`` has what callbacks see at each epoch's end.
    """

    def __init__(self, dies_in: int = 0, *, by_signal: bool = False) -> None:
        super().__init__()
        self.dies_in, self.by_signal = dies_in, by_signal
        self.dropout, self.mean = torch.nn.Dropout(0.3), MeanMetric()
        self.validations = 0
        self.seen: list[dict[str, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = self.loss((self.dropout(x), y))
        self.losses.append(loss.item())
        self.log("train_loss", loss, on_step=True, on_epoch=True, batch_size=len(x))
        self.mean.update(loss.detach())
        self.log("mean", self.mean, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch) + torch.rand(()), batch_size=len(batch[0]))
        if batch_idx == 1 and not self.trainer.sanity_checking:
            self.validations += 1
            if self.validations == self.dies_in:
                self.die()

    def die(self) -> None:
        if self.by_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        raise DiedError

    def on_train_epoch_end(self) -> None:
        values = self.trainer.callback_metrics
        self.seen.append({name: value.item() for name, value in values.items()})

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
        }


class Evaluated(TensorDataset):
    """Scores a model by a random number, or dies."""

    module: Validated

    def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
        self.module.validations += 1
        if self.module.validations == self.module.dies_in:
            self.module.die()
        return {"score": float(torch.rand(()))}


def train(
    folder: Path,
    module: Validated,
    *,
    host: bool = False,
    by_epoch: bool = True,
    background: bool = False,
    evaluates: bool = False,
    ckpt_path: Any = None,
    **arguments: Any,
) -> Any:
    """Train with an average, a text log, and checkpoints; return the module and its Trainer."""
    unit = {} if by_epoch else {"by_epoch": False}
    interval = 1 if by_epoch else 2
    saves = CheckpointHook(interval=interval, background=background, max_keep_ckpts=2, **unit)
    hooks: list[Any] = [EMAHook(momentum=0.1), saves, TextLoggerHook(interval=2, **unit)]
    if evaluates:
        data = Evaluated(torch.zeros(1, 4))
        data.module = module
        module.configure_optimizers = super(Validated, module).configure_optimizers
        best = {"save_best": "score", "rule": "greater"}
        hooks.append(EvalHook(DataLoader(data), test_fn=lambda *_: [], **best))
    else:
        hooks.append(BestCheckpointHook("val_loss", rule="less", **unit))
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0 if ckpt_path is None else 9)
    arguments = {"max_epochs": EPOCHS, **unit, **arguments}
    return fit(
        folder,
        *hooks,
        module=module,
        batches=make_loader(BATCHES, shuffle=True),
        val=0 if evaluates else make_loader(2, shuffle=True),
        host=host,
        callbacks=[EarlyStopping("train_loss_epoch", patience=99)],
        ckpt_path=ckpt_path,
        **arguments,
    )


def last_state(folder: Path) -> dict[str, Any]:
    """Return the last file's contents but for times and places, and the best scores."""
    newest = max(folder.glob("[ei]*_*.pth"), key=lambda path: int(path.stem.rpartition("_")[2]))
    found = torch.load(newest, weights_only=True)
    messages = found.pop("meta")["hook_msgs"]
    scores = {name: value for name, value in messages.items() if "score" in name}
    entry = found.pop("lightning_hooks")
    kept = {name: entry[name] for name in ("iter", "in_epoch", "rng", "log_buffer")}
    names = sorted(path.name for path in folder.glob("*.pth"))
    callbacks = {k: v for k, v in found.pop("callbacks").items() if "EarlyStopping" in k}
    return {**found, "entry": kept, "scores": scores, "names": names, "callbacks": callbacks}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    train(Path(sys.argv[1]), Validated(int(sys.argv[2]), by_signal=True))
