"""Two real processes save together, in the background too, and go on."""

from __future__ import annotations

import pytest
import torch

from lightning_hooks.storage import manifest
from support.processes import read_ranks, run_job


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
