"""SIGTERM on one of two ranks ends both with a checkpoint, without a deadlock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from support.processes import read_ranks, run_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: Any) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("sigterm")
    run_job("sigterm", out)
    return read_ranks(out), out


@pytest.mark.parametrize(
    ("reached", "steps"), [("rank 0", 3), ("both", 3), ("rank 1", 4)]
)  # before the next batch; a signal of another rank at the end of the epoch
def test_both_ranks_end_before_the_same_batch(reached: str, steps: int, job: Any) -> None:
    ended = {"error": "SIGTERMException", "steps": steps, "handler is back": True}
    assert [rank[reached] for rank in job[0]] == [ended] * 2


@pytest.mark.parametrize(("reached", "steps"), [("rank 0", 3), ("both", 3), ("rank 1", 4)])
def test_the_file_of_the_signal_is_written(reached: str, steps: int, job: Any) -> None:
    file = job[1] / reached / f"iter_{steps}.pth"
    assert torch.load(file, weights_only=True)["global_step"] == steps


def test_each_rank_goes_on_from_the_file_of_the_signal(job: Any) -> None:
    for rank in job[0]:
        assert len(rank["cut"]["steps"]) == 5  # the first of the second epoch
        steps = rank["cut"]["steps"] + rank["resumed"]["steps"]
        assert steps == rank["whole"]["steps"]  # dropout's too
        assert rank["resumed"]["epoch"] == rank["whole"]["epoch"]
