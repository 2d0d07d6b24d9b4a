"""Train in two processes with a slow loader on one rank, for test_step_time.py."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from lightning_hooks import Hook, StepTimeHook
from support.processes import write_rank
from support.training import NoValidation, fit, two_ranks

RANK = int(os.environ.get("LOCAL_RANK", 0))


class Slow(Dataset):  # type: ignore[type-arg]
    """A dataset whose samples take 40 ms each on the second rank."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.04 * RANK)
        return torch.ones(4), torch.zeros(2)


class OnRank0(Hook):
    """Takes 10 ms on rank 0."""

    def after_train_iter(self, runner: Any) -> None:
        if runner.rank == 0:
            time.sleep(0.01)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    hook = StepTimeHook(warmup_iters=2)
    batches = DataLoader(Slow(), batch_size=1)
    fit(out, hook, OnRank0(), module=NoValidation, batches=batches, **two_ranks())
    write_rank(out, hook.summary())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
