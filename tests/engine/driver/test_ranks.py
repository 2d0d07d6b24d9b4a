"""Two processes with different hooks make the same decisions without a deadlock."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, EMAHook, HookAdapter
from support.processes import read_ranks, run_job
from support.training import NoValidation, make_loader, make_trainer


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("ranks")
    run_job("ranks", out)
    return read_ranks(out), out


def test_what_a_hook_of_one_rank_decides_all_ranks_do(ranks: Any) -> None:
    first, second = (rank["stopped"] for rank in ranks[0])
    assert first == second
    for point in ("before_train_iter", "after_train_iter", "after_train_epoch"):
        assert [first[f"{point} on {rank}"] for rank in (0, 1)] == [4, 4]  # the end of the epoch
    assert first["another number"] == first["a closure"] == 4


def test_a_hook_that_came_later_is_asked_too(ranks: Any) -> None:
    assert [rank["stopped"]["a hook that came later"] for rank in ranks[0]] == [8, 8]


@pytest.mark.parametrize(
    ("border", "done"), [("a validation", 4), ("a checkpoint", 3), ("a pass", 4)]
)
def test_the_ranks_agree_to_stop_at(border: str, done: int, ranks: Any) -> None:
    assert [rank["stopped"][border] for rank in ranks[0]] == [done, done]


@pytest.mark.parametrize("hooks", ["foreign", "adapted"])
def test_a_step_waits_neither_for_another_rank_nor_for_the_device(hooks: str, ranks: Any) -> None:
    for rank in ranks[0]:
        assert rank["waits"][hooks] == rank["waits"]["none"]  # Lightning's own


def test_the_state_of_a_hook_of_ones_own_is_in_a_resumed_run(ranks: Any) -> None:
    assert [rank["totals"] for rank in ranks[0]] == [[4, 8, 4, 8]] * 2


def test_every_sampler_is_told_the_epoch(ranks: Any) -> None:
    assert [rank["seeds"] for rank in ranks[0]] == [[0, 0, 1, 1]] * 2


def test_callbacks_of_a_trainer_that_has_trained_go_on_in_a_copy(ranks: Any) -> None:
    assert [rank["copies"] for rank in ranks[0]] == [8, 8]


def test_buffers_are_equal_where_it_was_asked_for_by_iteration_too(ranks: Any) -> None:
    plain, hook, saved = (
        [rank["buffers"][n] for rank in ranks[0]] for n in ("plain", "hook", "saved")
    )
    assert plain[0][0] != plain[1][0]
    assert plain[0][-1] != plain[1][-1]
    assert hook[0][-1] == hook[1][-1]
    file = torch.load(ranks[1] / "bn_4.pth", weights_only=True)
    kept = file["state_dict"]["net.1.running_mean"]
    torch.testing.assert_close(kept, torch.tensor([saved[0][-1], saved[1][-1]]).mean(0))
    assert saved[0][-1] == saved[1][-1]


def test_departure_validations_within_an_epoch_find_equal_buffers(ranks: Any) -> None:
    first, second = (rank["buffers"]["mid_epoch"] for rank in ranks[0])
    assert [len({*map(tuple, means)}) for means in first] == [2, 2]
    assert first == second


def test_saving_in_a_function_for_rank_0_hangs_nowhere(ranks: Any) -> None:
    names = {path.name for path in (ranks[1] / "logs").glob("*.pth")}
    assert {"before_1.pth", "iter_2.pth", "after_2.pth"} <= names
    assert {"val_iter_2.pth", "val_2.pth", "run_3.pth"} <= names
    assert {"epoch_1.pth", "epoch_2.pth"} <= names  # of the CheckpointHook beside


@pytest.mark.parametrize("buffers", ["copy", "average"])
def test_the_averages_of_all_ranks_are_equal(ranks: Any, buffers: str) -> None:
    first, second = (rank["averages"][buffers] for rank in ranks[0])
    assert first["weights"] == second["weights"]


@pytest.mark.parametrize("backward", ["automatic", "owned"])
def test_ddp_broadcasts_statistics_where_backward_is_lightnings_and_averages_are_each_ranks_own(
    ranks: Any, backward: str
) -> None:
    first, second = (rank["statistics"][backward] for rank in ranks[0])
    others = first if backward == "automatic" else second  # where the second rank's come from
    assert first["before"][1:] == first["after"][:-1]
    assert second["before"][1:] == others["after"][:-1]
    assert all(a != b for a, b in zip(first["after"], second["after"], strict=True))
    for rank in (first, second):  # an average is never broadcast
        average = torch.zeros(8)
        for value in rank["after"]:
            average = torch.lerp(average, torch.tensor(value), 0.1)
        torch.testing.assert_close(torch.tensor(rank["average"]), average)
    file = torch.load(ranks[1] / backward / "stats_1.pth", weights_only=True)
    mean = "net.1.running_mean"
    assert file["current_model_state"][mean].tolist() == first["after"][-1]
    assert file["state_dict"][mean].tolist() == first["average"]


def test_logs_are_written_once(ranks: Any) -> None:
    (file,) = (ranks[1] / "logs").glob("*.log.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = [(line["epoch"], line["iter"]) for line in lines if line.get("mode") == "train"]
    assert steps == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert sum(line.get("mode") == "val" for line in lines) == 2


def test_hooks_of_a_dialect_on_one_rank_see_its_losses_and_wait_for_nobody(ranks: Any) -> None:
    own, stored = ranks[0][0]["dialect"]
    assert stored == pytest.approx(own)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
def test_what_stays_in_the_processes_of_a_notebook_is_named(hosted: bool, tmp_path: Path) -> None:
    log = logging.FileHandler(tmp_path / "log.txt")
    logging.getLogger("lightning_hooks").addHandler(log)
    hook, saver = EMAHook(momentum=0.5), CheckpointHook(interval=1)
    hooks = [HookAdapter([hook, saver])] if hosted else [hook, saver]
    options = {"strategy": "ddp_notebook", "devices": 1, "enable_checkpointing": not hosted}
    trainer = make_trainer(tmp_path, *hooks, max_epochs=1, **options)
    try:
        trainer.fit(module := NoValidation(), make_loader(2))
    finally:
        logging.getLogger("lightning_hooks").removeHandler(log)
        log.close()
    line = "this fit ran in processes of its own, and what its hooks hold ends with them"
    assert (tmp_path / "log.txt").read_text().count(line) == 1
    assert saver.last_checkpoint == saver.best_model_path == str(tmp_path / "epoch_1.pth")
    average = hook.ema_state_dict()
    assert average.keys() == module.state_dict().keys()
    assert all(torch.equal(average[name], value) for name, value in module.state_dict().items())
    hook.apply_to(other := NoValidation(seed=5))
    assert torch.equal(other.net.weight, module.net.weight)
