"""Averages of sharded parameters in two processes equal the averages of a single process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy

from lightning_hooks import EMAHook
from support.directories import read_checkpoint
from support.probes import equal
from support.processes import Job
from support.training import TinyModule, make_loader, make_trainer

KINDS = ["directory", "file"]
PARTS = ["fit", "resume", "broken", "mended", "poisoned", "restored"]
FILES = ["swapped_full", "swapped_weights", "half", "after_full", "after_weights"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> dict[str, Path]:
    """Run the jobs with whole and with sharded parameters in parallel; return the directories."""
    outs = {kind: tmp_path_factory.mktemp(kind) for kind in ("whole", *KINDS)}
    jobs = [
        Job("sharded_averages", out, kind, ranks=1 if kind == "whole" else 2)
        for kind, out in outs.items()
    ]
    for job in jobs:
        job.wait()
    return outs


@pytest.fixture(scope="module")
def found(runs: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each rank by kind."""
    ranks = {"whole": (0,), "directory": (0, 1), "file": (0, 1)}
    return {
        kind: [
            torch.load(runs[kind] / f"found{rank}.pt", weights_only=True) for rank in ranks[kind]
        ]
        for kind in runs
    }


def checkpoint(runs: dict[str, Path], kind: str, name: str) -> dict[str, Any]:
    path = runs[kind] / name
    assert path.is_dir() == (kind == "directory")
    return read_checkpoint(path)


def seen(rank: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the results of a rank that are equal on all ranks, so without losses and warnings."""
    return {key: value for key, value in rank[part].items() if key not in ("losses", "warned")}


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_is_the_average_of_a_run_in_one_process(found: Any, kind: str, part: str) -> None:
    one = seen(found["whole"][0], part)
    for rank in found[kind]:
        # weights in training and validation, final raw weights, both averages, counts of steps
        torch.testing.assert_close(seen(rank, part), one, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ranks_agree_to_the_last_bit(found: Any, kind: str) -> None:
    for part in PARTS:
        same(seen(found[kind][0], part), seen(found[kind][1], part))


@pytest.mark.parametrize("kind", ["whole", *KINDS])
def test_validation_sees_the_average_and_training_the_raw_weights(found: Any, kind: str) -> None:
    for rank in found[kind]:
        run = rank["fit"]
        assert equal(run["val"][-1], run["averages"][0])
        assert not equal(run["val"][-1], run["raw"])
        # a validation after each batch, whose weights would show in the next batch
        losses = [sum(r["fit"]["losses"][i] for r in found[kind]) for i in range(6)]
        assert len(set(losses)) == len(run["train"]) == 6


@pytest.mark.parametrize("kind", ["whole", *KINDS])
def test_a_resumed_run_is_bit_equal(found: Any, kind: str) -> None:
    for rank in found[kind]:
        whole, half = rank["fit"], rank["resume"]
        for key in ("raw", "averages", "steps", "val_loss"):
            same(half[key], whole[key])
        for key in ("train", "val", "losses"):
            same(half[key], whole[key][len(whole[key]) // 2 :])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_has_whole_averages_and_raw_weights(
    runs: Any, found: Any, kind: str, name: str
) -> None:
    file, one = checkpoint(runs, kind, name), checkpoint_of_one(runs, name)
    for part in ("current_model_state", "state_dict"):
        torch.testing.assert_close(file[part], one[part], rtol=1e-6, atol=1e-9)
    second, want = (f["lightning_hooks"]["averages"][1]["state_dict"] for f in (file, one))
    torch.testing.assert_close(second, want, rtol=1e-6, atol=1e-9)
    if name.startswith("after"):
        same(second, found[kind][0]["fit"]["averages"][1])
        same(file["current_model_state"], found[kind][0]["applied"])  # the module's at the save


def checkpoint_of_one(runs: dict[str, Path], name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(runs["whole"] / name, weights_only=True)
    return loaded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in FILES if name != "half"])
def test_a_checkpoint_is_evaluated_with_its_average(
    runs: Any, found: Any, kind: str, name: str
) -> None:
    for rank in found[kind]:
        one = checkpoint_of_one(runs, name)  # of files written swapped, too
        torch.testing.assert_close(rank[name]["val"][-1], one["state_dict"], rtol=1e-6, atol=1e-9)
        same(rank[name]["raw"], rank[name]["val"][-1])  # the module has the validated weights
        if name.startswith("after"):
            same(rank[name]["val"][-1], rank["fit"]["averages"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_is_whole(runs: Any, found: Any, kind: str) -> None:
    for name, average in zip(("ema", "swa"), found[kind][0]["fit"]["averages"], strict=True):
        same(torch.load(runs[kind] / f"{name}.pth", weights_only=True), average)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tensors_of_an_export_are_gathered_together(found: Any, kind: str) -> None:
    for rank in found[kind]:
        assert rank["export"] == {"all_gather": 1, "barrier": 1, "full_tensor": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sharded_module_takes_the_average_too(found: Any, kind: str) -> None:
    for rank in found[kind]:
        same(rank["applied"], rank["fit"]["averages"][0])


@pytest.mark.parametrize("kind", ["whole", *KINDS])
def test_an_error_in_validation_leaves_the_raw_weights(runs: Any, found: Any, kind: str) -> None:
    for rank in found[kind]:
        run = rank["broken"]
        assert equal(run["val"][-1], run["averages"][0])
        assert not equal(run["raw"], run["averages"][0])
    file = checkpoint(runs, kind, "broken_weights")  # written after the error
    same(file["current_model_state"], found[kind][0]["broken"]["raw"])
    same(file["state_dict"], found[kind][0]["broken"]["averages"][0])


@pytest.mark.parametrize("kind", ["whole", *KINDS])
def test_a_nan_on_one_rank_is_left_out_on_all(found: Any, kind: str) -> None:
    for rank in found[kind]:
        for average in rank["poisoned"]["averages"]:
            assert all(value.isfinite().all() for value in average.values())
    assert found[kind][0]["poisoned"]["warned"] == 1  # by the evaluated average


@pytest.mark.parametrize("kind", ["whole", *KINDS])
def test_hooks_write_clip_and_go_on_as_in_one_process(runs: Any, found: Any, kind: str) -> None:
    one = found["whole"][0]["kept"]
    for rank in found[kind]:
        run = rank["kept"]
        assert run["files"] == ["epoch_3.pth"]
        assert run["is directory"] == (kind == "directory")
        assert run["last"] == str(runs[kind] / "kept" / "epoch_3.pth")
        torch.testing.assert_close(run["raw"], one["raw"], rtol=1e-6, atol=1e-9)


class Flattens(SingleDeviceStrategy):
    """A strategy with the flag of FSDPStrategy, which needs a GPU."""

    restore_checkpoint_after_setup = True


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_a_strategy_that_flattens_is_refused_before_training(tmp_path: Path) -> None:
    class Module(TinyModule):
        def on_fit_start(self) -> None:
            raise AssertionError("too late")

    trainer = make_trainer(tmp_path, EMAHook(), strategy=Flattens("cpu"))
    with pytest.raises(ValueError, match=r"EMAHook does not work with Flattens.*fully_shard"):
        trainer.fit(Module(), make_loader())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_a_checkpoint_to_resume_from_is_given_to_the_trainer(tmp_path: Path) -> None:
    class Module(TinyModule):
        def configure_model(self) -> None:
            raise AssertionError("too late")

    try:
        hook = EMAHook(resume_from="a.ckpt")
        trainer = make_trainer(tmp_path, hook, strategy=ModelParallelStrategy())
        with pytest.raises(ValueError, match=r"resume_from='a.ckpt'.*fit\(ckpt_path="):
            trainer.fit(Module(), make_loader())
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
