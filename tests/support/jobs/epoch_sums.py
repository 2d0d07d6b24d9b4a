"""Trains two epochs, or goes on within the first of an earlier run, for test_epoch_sums.py.

python -m support.jobs.epoch_sums DIRECTORY RANKS
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy

from lightning_hooks import CheckpointHook, TextLoggerHook
from support.jobs.moved_directories import Module
from support.processes import write_rank
from support.training import make_loader, make_trainer

KINDS = ("file", "directory")


class Logs(Module):
    """Logs a value in each batch, and one in the first batch of an epoch."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        for name in ["each"] if batch_idx else ["each", "first"]:
            self.log(name, loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss


def train(out: Path, kind: str, ranks: int) -> list[str]:
    """Train; return the lines on values of an epoch."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lightning_hooks").addHandler(handler)
    strategy = ModelParallelStrategy(
        *(ranks, 1), process_group_backend="gloo", save_distributed_checkpoint=kind == "directory"
    )
    trainer = make_trainer(
        out,
        *(CheckpointHook(interval=2, by_epoch=False), TextLoggerHook()),
        strategy=strategy,
        devices=ranks,
        max_epochs=2,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=True,
    )
    path = out / "iter_2.pth"
    trainer.fit(Logs(), make_loader(4, 4), ckpt_path=path if path.exists() else None)
    logging.getLogger("lightning_hooks").removeHandler(handler)
    return [line for line in lines if "since the resume" in line]


def main(out: Path, ranks: int) -> None:
    torch.set_num_threads(1)
    write_rank(out, {kind: train(out / kind, kind, ranks) for kind in KINDS})
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
