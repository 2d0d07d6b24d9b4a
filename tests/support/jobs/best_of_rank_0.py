"""Resumes a finished run whose files only rank 0's directory has; for test_several_ranks.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook
from support.processes import write_rank
from support.training import TinyModule, fit, two_ranks


def main(out: Path) -> None:
    torch.set_num_threads(1)
    folder, weights = out / os.environ["LOCAL_RANK"], []
    for path in (None, out / "0" / "epoch_3.pth"):
        best = BestCheckpointHook("val_loss", rule="less", load_at_end=True)
        options = {"max_epochs": 3, "ckpt_path": path, "num_sanity_val_steps": 0, **two_ranks()}
        module = TinyModule(lr=0.01)
        fit(folder, CheckpointHook(1), best, module=module, batches=4, val=2, **options)
        weights.append(module.net.weight.tolist())
    write_rank(out, weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
