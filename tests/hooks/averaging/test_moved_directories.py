"""Checkpoint directories with averages, resumed by a different number of processes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy

from lightning_hooks import EMAHook, StochasticWeightAverageHook, newest_valid
from lightning_hooks.storage import manifest
from support.directories import consolidated, read_checkpoint
from support.jobs.moved_directories import STRATEGIES, LowModule, Module, read, train
from support.processes import run_job
from support.training import make_loader, make_trainer

pytestmark = pytest.mark.slow  # directories of FSDP2 are in test_sharded_averages.py, too


@pytest.fixture(scope="module")
def moved(tmp_path_factory: Any) -> tuple[list[dict[str, Any]], Path]:
    """Train an epoch each with 2, 1 and 2 ranks; return each rank's averages and the folder."""
    out = tmp_path_factory.mktemp("moved")
    for epochs, ranks in enumerate((2, 1, 2), 1):
        run_job("moved_directories", out, epochs, ranks, ranks=ranks)
    return [torch.load(out / f"found{rank}.pt", weights_only=True) for rank in (0, 1)], out


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_averages_move_between_numbers_of_ranks(strategy: str, moved: Any, tmp_path: Path) -> None:
    module = LowModule if "bfloat16" in strategy else Module
    for epochs in (1, 2, 3):
        one = train(tmp_path, "auto", epochs, module)
    tolerance = 1e-2 if "bfloat16" in strategy else 1e-5
    for rank in moved[0]:
        assert rank[strategy]["counts"] == one["counts"] == [(9, 9), (9, 9)]
        torch.testing.assert_close(
            rank[strategy]["averages"], one["averages"], rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_meta_pt_has_no_weights(strategy: str, moved: Any) -> None:
    meta = torch.load(moved[1] / strategy / "epoch_3.pth" / "meta.pt", weights_only=True)
    states = [
        meta["current_model_state"],
        meta["lightning_hooks"]["averages"][1]["state_dict"],
    ]
    assert {value.device.type for state in states for value in state.values()} == {"meta"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_parts_of_all_ranks_are_listed_as_intact(strategy: str, moved: Any) -> None:
    (entry,) = manifest.read(str(moved[1] / strategy))
    assert entry.crc32 is not None
    assert newest_valid(moved[1] / strategy) == str(moved[1] / strategy / "epoch_3.pth")


def test_a_directory_with_averages_in_meta_pt_resumes(moved: Any, tmp_path: Path) -> None:
    new, old = moved[1] / "fsdp2" / "epoch_3.pth", tmp_path / "epoch_3.pth"
    shutil.copytree(new, old)
    whole = read_checkpoint(new)
    assert torch.is_nonzero(whole["current_model_state"]["net.0.weight"].abs().sum())
    meta = {k: v for k, v in whole.items() if k not in ("state_dict", "optimizer_states")}
    torch.save(meta, old / "meta.pt")
    averages = []
    try:
        for path in (new, old):
            strategy = ModelParallelStrategy(1, 1, process_group_backend="gloo")
            averages.append(train(tmp_path / path.parent.name, strategy, 4, ckpt_path=path))
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(*averages, rtol=0, atol=0)


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp"])
def test_a_file_that_lightning_makes_of_a_directory_is_evaluated(
    strategy: str, moved: Any, tmp_path: Path
) -> None:
    torch.save(consolidated(moved[1] / strategy / "epoch_3.pth"), tmp_path / "a.ckpt")
    hooks = [EMAHook(0.1, warm_up=0, buffers="copy"), StochasticWeightAverageHook()]
    trainer = make_trainer(tmp_path, *hooks)
    trainer.validate(Module(), make_loader(1, 4), ckpt_path=tmp_path / "a.ckpt", verbose=False)
    want = moved[0][0][strategy]
    torch.testing.assert_close(read(hooks, Module), want, rtol=0, atol=0)
