"""Averages of FSDP's flat parameters in two processes equal the averages of a single process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckInvalidLossHook
from support.directories import read_checkpoint
from support.jobs.flat_averages import KINDS, SHARDINGS, Poison, run
from support.probes import equal
from support.processes import run_job

ALL = [f"{sharding}_{kind}" for sharding in SHARDINGS for kind in KINDS]
SAVED = [name for name in ALL if not name.endswith("flat")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: Any) -> Path:
    out: Path = tmp_path_factory.mktemp("flat")
    run_job("flat_averages", out, timeout=400)
    return out


@pytest.fixture(scope="module")
def found(out: Path) -> list[dict[str, Any]]:
    """Return the results of each rank."""
    return [torch.load(out / f"found{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> dict[str, Any]:
    """Train in a single process; return the results by kind of run."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.warns(UserWarning, match="left 1 updates out"):
        poisoned = run(folder, "auto", Poison())
    check = CheckInvalidLossHook(interval=1, action="restore")
    restored = run(folder, "auto", check, bad_step=4)
    return {"": run(folder, "auto"), " poisoned": poisoned, " restored": restored}


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (kind, step)
        for kind in ALL
        for step in ("", " poisoned", " restored")
        if not (step and kind.endswith("directory"))
    ],
)
def test_is_the_average_of_a_run_in_one_process(
    found: Any, whole: Any, kind: str, step: str
) -> None:
    whole, kind = whole[step], f"{kind}{step}"
    for rank in found:
        torch.testing.assert_close(rank[kind]["val"], whole["val"], rtol=2e-6, atol=2e-6)
        for average, wanted in zip(rank[kind]["averages"], whole["averages"], strict=True):
            torch.testing.assert_close(average, wanted, rtol=2e-6, atol=2e-6)
    assert equal(found[0][kind]["averages"][0], found[1][kind]["averages"][0])


@pytest.mark.parametrize("kind", ALL)
def test_two_averages_share_a_vote_in_each_step(found: Any, kind: str) -> None:
    assert [rank[kind]["votes"] for rank in found] == [8, 8]


@pytest.mark.parametrize("kind", SAVED)
def test_a_resumed_run_is_bit_equal(found: Any, kind: str) -> None:
    for rank in found:
        run, resumed = rank[kind], rank[f"{kind} resumed"]
        assert resumed["train"] == run["train"][4:]
        assert resumed["val"][-4:] == run["val"][-4:]
        for average, wanted in zip(resumed["averages"], run["averages"], strict=True):
            assert equal(average, wanted)


@pytest.mark.parametrize("kind", SAVED)
def test_files_have_the_average_and_the_raw_weights(found: Any, out: Path, kind: str) -> None:
    folder = out / kind
    swapped, half = (read_checkpoint(folder / f"{n}.ckpt") for n in ("swapped", "half"))
    for key in ("state_dict", "current_model_state"):
        assert equal(swapped[key], half[key])
    assert not equal(half["state_dict"], half["current_model_state"])
    other = half["lightning_hooks"]["averages"][1]["state_dict"]
    assert other.keys() == half["state_dict"].keys()
    after = read_checkpoint(folder / "after.ckpt")
    assert equal(after["state_dict"], found[0][kind]["averages"][0])
    assert not equal(after["state_dict"], after["current_model_state"])
    exported = torch.load(folder / "exported.pth", weights_only=True)
    assert equal(exported, found[0][kind]["averages"][0])
