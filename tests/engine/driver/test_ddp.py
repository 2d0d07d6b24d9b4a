"""Two DDP processes: gradients are synchronized, and no rank deadlocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from support.logs.trackers import read_tensorboard
from support.processes import read_ranks, run_job


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("ddp")
    run_job("ddp", out, ranks=1)
    return read_ranks(out), out


def test_owned_backward_is_synchronised(ranks: Any) -> None:
    found = ranks[0]
    assert found[0]["owned"]["weights"] == found[1]["owned"]["weights"]
    torch.testing.assert_close(
        torch.tensor(found[0]["owned"]["weights"]), torch.tensor(found[0]["automatic"]["weights"])
    )
    assert found[0]["global_step"] == 4


def test_each_rank_knows_itself_and_sees_the_bare_module(ranks: Any) -> None:
    found = [rank["owned"] for rank in ranks[0]]
    assert [(f["rank"], f["world_size"], f["bare"]) for f in found] == [
        (0, 2, "NoValidation"),
        (1, 2, "NoValidation"),
    ]
    assert found[0]["batches"] != found[1]["batches"]


def test_a_hook_may_save_on_rank_0_alone(ranks: Any) -> None:
    saved = torch.load(ranks[1] / "epoch_2.pth", weights_only=True)
    assert saved["meta"]["epoch"] == 2
    assert saved["state_dict"]["net.weight"].tolist() == ranks[0][0]["owned"]["weights"]


def test_should_stop_on_one_rank_stops_all_at_the_end_of_the_epoch(ranks: Any) -> None:
    assert [rank["stopped"]["iters"] for rank in ranks[0]] == [2, 2]
    assert [rank["stopped before the step"] for rank in ranks[0]] == [2, 2]


def test_backward_in_the_models_own_step_is_warned_of(ranks: Any) -> None:
    found = [[w for w in rank["warned"] if "not synchronised" in w] for rank in ranks[0]]
    assert len(found[0]) == 1
    assert "TwoOptimizers does backward in its own train_step" in found[0][0]


def test_departure_a_replaced_model_is_refused_on_several_ranks(ranks: Any) -> None:
    assert all("replaced in training on several ranks" in rank["refused"] for rank in ranks[0])


def test_a_replaced_loader_gets_the_distributed_sampler(ranks: Any) -> None:
    numbers = [sorted(x for b in rank["replaced"]["batches"] for x in b) for rank in ranks[0]]
    assert sorted(numbers[0] + numbers[1]) == [float(i) for i in range(8)]


def test_the_random_states_of_all_ranks_are_saved(ranks: Any) -> None:
    saved = torch.load(ranks[1] / "lightning.ckpt", weights_only=True)
    states = [s["torch"] for s in saved["lightning_hooks"]["rng"]]
    assert len(states) == 2
    assert not torch.equal(*states)


def test_only_rank_0_sends_to_a_backend(ranks: Any) -> None:
    pytest.importorskip("tensorboard")
    assert len(list((ranks[1] / "tf_logs").iterdir())) == 1
    rows, _ = read_tensorboard(ranks[1] / "tf_logs")
    assert sorted(rows) == [1, 2, 3, 4]
    assert not (ranks[1] / "spool").exists()
