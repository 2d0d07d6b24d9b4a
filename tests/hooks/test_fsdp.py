"""Hooks with FSDP and FSDP2 in two processes act as with DDP or are refused before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from support.jobs.fsdp import SHARDINGS
from support.processes import run_job

pytestmark = pytest.mark.slow  # test_sharded_averages.py has a quick test of FSDP2

Found = list[dict[str, Any]]


def run(out: Path, *parts: str) -> Found:
    """Run parts of the job; return the results of each rank."""
    run_job("fsdp", out, *parts, timeout=300)
    return [torch.load(out / f"found{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(tmp_path_factory.mktemp("fsdp"), "measures", "clips", "norms", "saves", "refuses")


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(tmp_path_factory.mktemp("more"), "acts", "owns", "scales", "loads_best", "weights")


def same(a: list[torch.Tensor], b: list[torch.Tensor], parameters: int = 6) -> None:
    """Compare parameters only, because only DDP broadcasts the buffers of rank 0."""
    assert len(a) == len(b)
    for x, y in zip(a[:parameters], b[:parameters], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
@pytest.mark.parametrize("action", ["skip", "restore", "stop"])
def test_a_loss_that_is_nan_on_one_rank_is_acted_on_as_with_ddp(
    kind: str, action: str, more: Found
) -> None:
    for rank in more:
        ddp, other = rank["acts"]["ddp"][action], rank["acts"][kind][action]
        assert other["steps"] == ddp["steps"]
        same(other["whole"], ddp["whole"])
    assert "rank 1 became invalid at iter 4" in more[0]["acts"][kind]["raise"]["said"]


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
def test_norms_are_those_of_the_whole_tensors(kind: str, found: Found) -> None:
    ddp, other = found[0]["norms"]["ddp"]["rows"], found[0]["norms"][kind]["rows"]
    assert len(ddp) == len(other) == 2
    for row, by_shards in zip(ddp, other, strict=True):
        assert by_shards == pytest.approx(row, rel=1e-4, abs=2e-5)


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
def test_hooks_that_run_the_model_find_it_whole(kind: str, found: Found) -> None:
    for rank in found:
        ddp, other = rank["measures"]["ddp"], rank["measures"][kind]
        assert other["scores"] == pytest.approx(ddp["scores"], rel=1e-5)
        assert other["best"] == ddp["best"] == ["best_MeanSquaredError_epoch_2.pth"]
        same(other["whole"], ddp["whole"], parameters=9)  # the statistics too


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
@pytest.mark.parametrize("recipe", ["norm", "value", "auto", "infinite"])
def test_accumulated_gradients_are_clipped_as_with_ddp(
    kind: str, recipe: str, found: Found
) -> None:
    for rank in found:
        same(rank["clips"][kind][recipe], rank["clips"]["ddp"][recipe])


@pytest.mark.parametrize("name", ["cumulative", "scaled", "both"])
def test_hooks_own_backward_with_fsdp2_but_not_with_fsdp(name: str, more: Found) -> None:
    for rank in more:
        owns = rank["owns"]
        same(owns["fsdp2"][name], owns["ddp"][name])
        assert owns["fsdp"][name].startswith("ValueError in step 0: ")
        assert "ModelParallelStrategy" in owns["fsdp"][name]


def test_gradients_are_clipped_when_fsdp_has_unscaled_them(more: Found) -> None:
    for rank in more:
        ddp, fsdp = rank["scales"]["ddp"], rank["scales"]["fsdp"]
        assert fsdp["scale"] == 512
        assert fsdp["norms"] == pytest.approx(ddp["norms"], rel=0.1)  # in half precision


def went_on(run: dict[str, Any], out: str) -> None:
    assert run["last"].endswith(out)
    assert run["listed"] == run["files"]
    for a, b in zip(run["went on"], run["not interrupted"], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("what", ["directory", "file"])
def test_a_resumed_run_is_the_uninterrupted_one(what: str, found: Found) -> None:
    for rank in found:
        one = rank["saves"]["fsdp"][what]
        went_on(one, "epoch_2.pth")
        assert one["files"] == ["best_val_loss_epoch_3.pth", "epoch_3.pth"]
        assert one["is directory"] == (what == "directory")


def test_in_every_way_that_fsdp_shards(tmp_path: Path) -> None:
    for rank in run(tmp_path, "saves_all"):
        runs = {**rank["saves_all"]["fsdp"], **rank["saves_all"]["fsdp2"]}
        assert len(runs) == 2 * (len(SHARDINGS) + 2) + 3
        for name, one in runs.items():
            went_on(one, "epoch_2.pth")
            assert one["files"][-1] == "epoch_3.pth"
            assert one["is directory"] == (name.split()[0] not in ("file", "full"))


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
@pytest.mark.parametrize("what", ["directory", "file"])
def test_files_of_weights_are_not_gone_on_from(kind: str, what: str, more: Found) -> None:
    for rank in more:
        said = rank["weights"][kind][what]
        assert said.startswith("WeightsOnlyError in step 0: ")
        assert "save with save_optimizer=True" in said


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fsdp2"])
def test_the_best_weights_are_loaded_at_the_end(kind: str, more: Found) -> None:
    for rank in more:
        runs = rank["loads_best"][kind]
        assert len(runs) == {"ddp": 2, "fsdp": 4, "fsdp2": 4}[kind]
        for run in runs.values():
            same(run["after"], run["best"])


def test_the_whole_is_exported_or_nothing(more: Found) -> None:
    for rank in more:
        for kind in ("fsdp", "fsdp2"):
            found = rank["weights"][kind]
            same(found["export file"], found["whole"][:6])
            assert "dcp_to_torch" in found["export best"]
        assert "cannot gather" in rank["weights"]["fsdp"]["export directory"]
        fsdp2 = rank["weights"]["fsdp2"]
        same(fsdp2["export directory"], fsdp2["whole directory"][:6])


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("fsdp", "mmcv's EMA", "use lightning_hooks.EMAHook with ModelParallelStrategy"),
        ("fsdp2", "mmcv's EMA", "use lightning_hooks.EMAHook with ModelParallelStrategy"),
        ("fsdp", "backward", "Trainer(accumulate_grad_batches=...)"),
        ("fsdp", "groups", "clip all of them by norm or value"),
        ("fsdp", "parts", r"auto_wrap_policy=..."),
        ("fsdp", "scaled", 'precision="16-mixed"'),
        ("fsdp", "one state", "give use_orig_params=True"),
        ("fsdp", "remote", "not memory://there/fsdp: give a local out_dir"),
        ("fsdp2", "remote", "not memory://there/fsdp2: give a local out_dir"),
        ("fsdp", "remote best", "give a local out_dir"),
        ("fsdp2", "remote best", "give a local out_dir"),
        ("fsdp", "load", "Trainer.fit(ckpt_path=...)"),
        ("fsdp2", "load", "Trainer.fit(ckpt_path=...)"),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    kind: str, name: str, message: str, found: Found
) -> None:
    for rank in found:
        said = rank["refuses"][kind][name]
        assert said.startswith("ValueError in step 0: ")
        assert message in said


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2"])
def test_an_old_hook_that_saves_on_one_rank_does_not_wait_for_the_others(
    kind: str, found: Found
) -> None:
    said = found[0]["refuses"][kind]["save"]
    assert said.startswith("ValueError in step 1: runner.save_checkpoint() works on one rank")


def test_a_gpu_is_what_lightning_asks_for() -> None:
    with pytest.raises(ValueError, match="requires a GPU"):
        L.Trainer(accelerator="cpu", strategy="fsdp", devices=1)
