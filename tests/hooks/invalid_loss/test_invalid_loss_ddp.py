"""CheckInvalidLossHook in two processes: both ranks act on a bad loss of either rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.hooks.invalid_loss.loss_history import load_batch
from support.processes import read_ranks, run_job

SKIPS = ("skip", "skip-fused", "skip-owned")


@pytest.fixture(scope="module")
def job(tmp_path_factory: Any) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("invalid")
    run_job("invalid_loss", out)
    return read_ranks(out), out


@pytest.mark.parametrize(
    "name", ["skip", "skip-fused", "skip-owned", "skip-spike", "stop", "restore"]
)
def test_both_end_with_equal_and_finite_weights(name: str, job: Any) -> None:
    one, other = (rank[name] for rank in job[0])
    assert one["weights"] == other["weights"]
    assert one["finite"]
    assert other["finite"]
    assert one["error"] is None


@pytest.mark.parametrize("name", SKIPS)
def test_both_skip_the_steps_of_a_batch_that_is_bad_on_one(name: str, job: Any) -> None:
    for rank in (0, 1):
        assert job[0][rank][name]["seen"] == 6
    text = "\n".join(job[0][0][name]["said"])
    assert "skipped the optimizer steps of iters 1, 3\nthe loss of rank 1 became" in text
    assert "skipped 2 of 6 optimizer steps: those of iters 1, 3" in text


def test_both_skip_the_step_of_a_spike_on_one(job: Any) -> None:
    text = "\n".join(job[0][0]["skip-spike"]["said"])
    assert "skipped the optimizer steps of iters 4\nthe loss of rank 1 became invalid" in text


def test_both_stop_and_leave_no_file_with_the_bad_step(job: Any) -> None:
    assert [rank["stop"]["seen"] for rank in job[0]] == [4, 4]
    assert any("at iter 2" in t and "training stops" in t for t in job[0][0]["stop"]["said"])
    saved = torch.load(job[1] / "stop" / "epoch_1.pth", weights_only=True)
    for name in ("state_dict", "current_model_state"):
        assert all(value.isfinite().all() for value in saved[name].values())
    assert saved["current_model_state"]["net.0.weight"].tolist() == job[0][1]["stop"]["weights"][0]


def test_both_restore_from_a_file_that_one_reads(job: Any) -> None:
    one, other = (rank["restore-file"] for rank in job[0])
    for what in ("weights", "optimizers", "average"):
        assert one[what] == other[what]
    assert one["finite"]
    assert one["seen"] == 6
    assert any("iter_2.pth; training goes on" in text for text in one["said"])


def test_the_values_of_a_file_are_sent_as_tensors(job: Any) -> None:
    assert [rank["restore-file"]["sent in objects"] for rank in job[0]] == [0, 0]


def test_departure_both_raise_and_name_the_rank_and_the_iteration(job: Any) -> None:
    here, there = (rank["raise"]["error"] for rank in job[0])
    assert here.startswith("the loss of rank 1 became invalid at iter 2")
    assert there.startswith("the loss became nan at iter 2 ")
    names = [path.name for path in job[1].glob("invalid_*")]
    assert names == ["invalid_iter_2_rank_1.pt"]
    assert load_batch(str(job[1] / names[0]))["rank"] == 1


def test_a_good_run_is_left_alone(job: Any) -> None:
    assert [rank["good"]["error"] for rank in job[0]] == [None, None]
