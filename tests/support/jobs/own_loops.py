"""Run custom runner loops and a test on two ranks, for test_own_loops.py."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

from lightning_hooks import standin
from support.processes import write_rank


def evaluate(rank: int, folder: Path) -> None:
    """Test a model on both ranks, through files and from rank to rank."""
    from mmcv.engine import multi_gpu_test

    method = f"file://{folder}/test"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
    samples: Any = [{"x": torch.tensor(float(index))} for index in range(5)]
    loader = DataLoader(samples, sampler=DistributedSampler(samples, shuffle=False))
    printed = io.StringIO()

    class Tells(torch.nn.Module):
        """A model that returns the input."""

        def forward(self, x: torch.Tensor, return_loss: bool = True) -> list[float]:
            return x.flatten().tolist()

    with contextlib.redirect_stdout(printed):
        found = [
            multi_gpu_test(Tells(), loader, str(folder / "parts")),
            multi_gpu_test(Tells(), loader, gpu_collect=True),
        ]
    averages = [average(rank, *how) for how in ((), (False,), (True, 1))]
    distributed.destroy_process_group()
    bars = printed.getvalue().count("] 5/5, ")
    write_rank(folder, {"found": found, "bars": bars, "averages": averages}, "test")


def average(rank: int, *how: Any) -> list[Any]:
    """Average tensors of two dtypes over both ranks; one tensor is larger than a megabyte."""
    from mmcv.runner.dist_utils import allreduce_params

    large = torch.full((300, 1000), float(rank)).t()
    tensors = [torch.tensor([[rank, 2.0], [3.0, 4.0 * rank]]), large, large[:2].double()]
    allreduce_params([*tensors, torch.tensor(rank)], *how)
    return [tensors[0].tolist(), *([*{*t.flatten().tolist()}] for t in tensors[1:])]


if __name__ == "__main__":
    rank, folder = int(os.environ["LOCAL_RANK"]), Path(sys.argv[1])
    standin.install()
    from own_loops import run_on_rank

    run_on_rank(rank, folder)
    evaluate(rank, folder)
