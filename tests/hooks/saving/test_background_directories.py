"""Two processes write checkpoint directories in the background; one process is killed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import newest_valid
from lightning_hooks.storage import manifest
from lightning_hooks.storage.layout import OWN_PART
from support.directories import read_checkpoint
from support.probes import equal
from support.processes import Job, read_ranks, run_job

Ranks = list[dict[str, Any]]


@pytest.fixture(
    scope="module", params=["fsdp2", pytest.param("fsdp", marks=pytest.mark.slow)], name="trained"
)
def train(request: Any, tmp_path_factory: Any) -> tuple[str, Path, Ranks]:
    """Return the strategy, the output directory and the results of each rank."""
    out: Path = tmp_path_factory.mktemp(request.param)
    run_job("background_shards", out, request.param, "trains")
    return request.param, out, read_ranks(out)


def test_training_goes_on_and_nothing_is_listed_while_a_rank_writes(trained: Any) -> None:
    for rank in trained[2]:
        (during,) = rank["during a write"]
        assert during == {"training goes on": True, "is listed": False}


def test_a_run_resumed_from_a_background_save_is_the_uninterrupted_one(trained: Any) -> None:
    _, out, ranks = trained
    for rank in ranks:
        assert rank["resumed"]["run"] == rank["blocking"]
    for name in ("epoch_3.pth", "epoch_4.pth"):
        blocking, background = (read_checkpoint(out / kind / name) for kind in BOTH)
        for key in ("state_dict", "current_model_state"):
            assert equal(background[key], blocking[key])
        states = [file["optimizer_states"][0]["state"] for file in (blocking, background)]
        assert all(equal(states[1][name], state) for name, state in states[0].items())


def test_the_list_and_the_files_are_those_of_a_blocking_run(trained: Any) -> None:
    blocking, background = (trained[1] / kind for kind in BOTH)
    of_kinds = [manifest.read(str(folder)) for folder in (blocking, background)]
    moments = [{(e.name, e.epoch, e.iter) for e in entries} for entries in of_kinds]
    assert moments[0] == moments[1]
    assert ("epoch_4.pth", 4, 12) in moments[0]
    assert all(entry.crc32 for entry in of_kinds[1])
    assert newest_valid(background) == str(background / "epoch_4.pth")
    files = [sorted(p.relative_to(f) for p in f.rglob("*")) for f in (blocking, background)]
    assert files[0] == files[1]


def test_all_ranks_write_to_the_directory_of_rank_0(trained: Any) -> None:
    _, out, ranks = trained
    assert not [*out.glob("*/of rank 1/**/*.pt")]
    assert ranks[0]["blocking"]["last and best"] == ranks[1]["blocking"]["last and best"]
    assert ranks[0]["blocking"]["last and best"][0] == "epoch_4.pth"


def test_a_rank_writes_and_reads_its_own_random_state_alone(trained: Any) -> None:
    _, out, ranks = trained
    for number, rank in enumerate(ranks):
        assert rank["resumed"]["states"] == [f"optimizer_1.state.ranks.{number}"]
    own = torch.load(out / "blocking" / "epoch_4.pth" / "meta.pt", weights_only=True)[OWN_PART]
    assert not {"rng", "loaders", "data"} & own.keys()
    assert len(read_checkpoint(out / "blocking" / "epoch_4.pth")[OWN_PART]["rng"]) == 2


BOTH = ("blocking", "background")


@pytest.mark.parametrize(
    ("rank", "place"), [(0, "finish"), pytest.param(1, "write_data", marks=pytest.mark.slow)]
)
def test_a_kill_while_a_directory_is_written_leaves_the_one_before(
    trained: Any, tmp_path: Path, rank: int, place: str
) -> None:
    strategy, _, ranks = trained
    job = Job("background_shards", tmp_path, strategy, "breaks", rank, place, "killed")
    assert job.wait_for_all(120)[rank] == -signal.SIGKILL
    assert (tmp_path / "epoch_2.pth" / "__0_0.distcp").exists()
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")
    run_job("background_shards", tmp_path, strategy, "resumes")
    assert [rank["run"] for rank in read_ranks(tmp_path)] == [rank["blocking"] for rank in ranks]


def test_an_error_of_a_rank_ends_all_and_names_the_rank(tmp_path: Path) -> None:
    run_job("background_shards", tmp_path, "fsdp2", "breaks", 1, "write_data", "full")
    errors = [[rank["error"], *rank["notes"]] for rank in read_ranks(tmp_path)]
    assert len(errors) == 2
    # on a busy machine a rank may exit before the other rank gets its answer
    said = [line for lines in errors for line in lines]
    assert any("rank 1: OSError: [Errno 28] No space left on device" in line for line in said)
    assert any("epoch_2.pth was written in the background" in line for line in said)
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")
