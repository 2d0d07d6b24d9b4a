"""Trains in two processes, of which one waits for its data, for test_step_time.py."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

from lightning_hooks import Hook, StepTimeHook
from support.training import TinyModule

RANK = int(os.environ.get("LOCAL_RANK", 0))


class Slow(Dataset):  # type: ignore[type-arg]
    """The second rank's numbers take 40 ms each."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.04 * RANK)
        return torch.ones(4), torch.zeros(2)


class OnRank0(Hook):
    """Costs 10 ms on one rank."""

    def after_train_iter(self, runner: Any) -> None:
        if runner.rank == 0:
            time.sleep(0.01)


class Module(TinyModule):
    validation_step = None  # type: ignore[assignment]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    hook = StepTimeHook(warmup_iters=2)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        callbacks=[hook, OnRank0()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
    )
    trainer.fit(Module(), DataLoader(Slow(), batch_size=1))
    (out / f"rank{RANK}.json").write_text(json.dumps(hook.summary()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
