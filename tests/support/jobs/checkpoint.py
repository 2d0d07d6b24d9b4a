"""Saves and resumes in two processes; test_checkpoint_ddp.py reads what they find."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning as L
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook
from support.processes import write_rank
from support.training import TinyModule, fit, make_loader, two_ranks


class Module(TinyModule):
    """Its validation result differs from rank to rank; one rank decides."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        score = [0.1, 0.9, 0.2, 0.95, 0.3][self.trainer.current_epoch]
        self.log("acc", score + 0.01 * self.global_rank * (-1) ** self.trainer.current_epoch)


def train(directory: Path, epochs: int, *, background: bool, **kwargs: Any) -> L.Trainer:
    """Train with the last two checkpoints and the best one."""
    hooks = [
        CheckpointHook(interval=1, max_keep_ckpts=2, background=background),
        BestCheckpointHook("acc", background=background),
    ]
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.manual_seed(1 + rank)
    options = {"max_epochs": epochs, "num_sanity_val_steps": 0, **two_ranks(), **kwargs}
    return fit(
        directory, *hooks, module=Module, batches=make_loader(8, shuffle=True), val=2, **options
    )


class Differs(TinyModule):
    """Its buffers are others on each rank."""

    validation_step = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.tensor(0))

    def on_train_batch_end(self, *args: Any) -> None:
        self.mean.fill_(self.global_rank)
        self.count.fill_(7 + self.global_rank)


def synced(directory: Path) -> list[float]:
    """The buffers of this rank after a run that averages them for its files."""
    module = Differs()
    fit(directory, CheckpointHook(interval=1, sync_buffer=True), module=module, **two_ranks())
    return [module.mean.item(), module.count.item()]


def main(out: Path) -> None:
    whole = train(out / "whole", 5, background=False)
    train(out / "parts", 3, background=True)
    parts = train(out / "parts", 5, background=True, ckpt_path="last")
    weights = [t.lightning_module.net.weight.tolist() for t in (whole, parts)]
    best = [t.checkpoint_callbacks[1].best_model_path for t in (whole, parts)]
    found = {"weights": weights, "best": best, "last": parts.checkpoint_callback.last_checkpoint}
    write_rank(out, synced(out / "synced"), "synced")
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
