"""Two processes save together and resume; one process is killed while the other saves."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from lightning_hooks import CheckpointHook, newest_valid
from lightning_hooks.storage import manifest
from support import training
from support.jobs import dying_rank
from support.processes import Job, read_ranks, run_job


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("ranks")
    run_job("checkpoint", tmp_path)
    return tmp_path


def test_departure_of_the_buffers_that_are_synced_integers_stay_as_they_are(out):
    ranks = read_ranks(out, "synced")
    assert ranks == [[0.5, 7], [0.5, 8]]
    state = torch.load(out / "synced" / "epoch_1.pth", weights_only=True)["state_dict"]
    assert (state["mean"].item(), state["count"].item()) == (0.5, 7)


def test_two_ranks_save_and_go_on_as_if_they_had_not_ended(out):
    ranks = read_ranks(out)
    assert ranks[0] == ranks[1]
    assert ranks[0]["weights"][0] == ranks[0]["weights"][1]
    for name, best in zip(("whole", "parts"), ranks[0]["best"], strict=True):
        assert best == str(out / name / "best_acc_epoch_4.pth")
        found = {path.name for path in (out / name).glob("*_*.pth")}
        assert found == {"epoch_4.pth", "epoch_5.pth", "best_acc_epoch_4.pth"}
        entries = manifest.read(str(out / name))
        assert {entry.name for entry in entries} == found
        assert len({entry.run for entry in entries}) == 1
    assert ranks[0]["last"] == str(out / "parts" / "epoch_5.pth")


def test_rank_0_compares_the_checksums_of_a_file_for_all(out):
    first, second = read_ranks(out, "compared")
    assert "epoch_3.pth" in first
    assert second == []


def test_all_ranks_pass_over_a_damaged_file_or_refuse_it(out):
    assert read_ranks(out, "damaged") == [["DamagedCheckpointError", "epoch_2.pth"]] * 2


@pytest.mark.parametrize(
    "background", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sync", "background"]
)
def test_a_rank_that_dies_while_the_other_saves(tmp_path: Path, background: bool) -> None:
    codes = Job("dying_rank", tmp_path, background).wait_for_all(2 * dying_rank.TIMEOUT)
    assert codes[0] not in (0, None, -signal.SIGKILL), "it has ended by itself"
    assert codes[1] == -signal.SIGKILL
    found = json.loads((tmp_path / "rank0.json").read_text())
    assert found["seconds"] < dying_rank.TIMEOUT
    assert "closed by peer" in found["error"] or "reset by peer" in found["error"], found
    work = tmp_path / "work"
    # in the background the next epoch may have ended before the rank has
    whole = {"epoch_2.pth", "epoch_3.pth"} if background else {"epoch_2.pth"}
    assert Path(str(newest_valid(work))).name in whole, "the file was completed"
    assert list(work.glob("*.tmp")) == []
    hook = CheckpointHook(interval=1, max_keep_ckpts=2)
    module = training.NoValidation()
    training.fit(work, hook, module=module, max_epochs=dying_rank.EPOCHS, ckpt_path="last")
    assert module.trainer.current_epoch == dying_rank.EPOCHS
    assert [entry.name for entry in manifest.read(str(work))] == ["epoch_3.pth", "epoch_4.pth"]


def test_of_a_finished_run_all_ranks_load_the_best_file_that_rank_0_finds(tmp_path: Path) -> None:
    run_job("best_of_rank_0", tmp_path)
    first, second = read_ranks(tmp_path)
    (path,) = (tmp_path / "0").glob("best_val_loss_epoch_[12].pth")  # not the last
    best = torch.load(path, weights_only=True)
    assert first == second == [best["state_dict"]["net.weight"].tolist()] * 2
