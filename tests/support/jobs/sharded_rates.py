"""Train sharded parameters with a schedule in two processes, whole and resumed.

python -m support.jobs.sharded_rates DIRECTORY KIND, with the KIND of checkpoint: directory or file.
For test_sharded_rates.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    CosineAnnealingMomentumUpdaterHook,
    Hook,
    HookAdapter,
)
from support.jobs.sharded_averages import Module, loaders, trainer_of


class Rates(Hook):
    """Records the rate and the momentum of each step, and ends the run after an epoch."""

    def __init__(self, last_epoch: int | None = None) -> None:
        self.seen: list[list[float]] = []
        self.last_epoch = last_epoch

    def before_train_iter(self, runner: Any) -> None:
        self.seen.append([*runner.current_lr(), *runner.current_momentum()])

    def after_train_epoch(self, runner: Any) -> None:
        runner.trainer.should_stop = runner.epoch + 1 == self.last_epoch


def fit(out: Path, kind: str, last_epoch: int | None = None, ckpt_path: str | None = None) -> Any:
    rates = Rates(last_epoch)
    trainer = trainer_of(
        out,
        kind,
        HookAdapter(
            [
                CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=False),
                CosineAnnealingMomentumUpdaterHook(min_momentum=0.5, by_epoch=False),
                CheckpointHook(interval=1),
                rates,
            ],
            work_dir=str(out),
        ),
        max_epochs=4,
    )
    trainer.fit(Module(), *loaders(), ckpt_path=ckpt_path)
    return rates.seen


def main(out: Path, kind: str) -> None:
    torch.set_num_threads(1)
    found = {
        "whole": fit(out / "whole", kind),
        "cut": fit(out / "cut", kind, last_epoch=2),
        "resumed": fit(out / "cut", kind, ckpt_path=str(out / "cut" / "epoch_2.pth")),
    }
    torch.save(found, out / f"found{os.environ.get('LOCAL_RANK', 0)}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
