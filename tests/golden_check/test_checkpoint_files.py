"""mmcv's loader reads the files of CheckpointHook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import job
import pytest
import torch
from oracle import mmcv_runner

from lightning_hooks import CheckpointHook, HookAdapter, TrainStepModule
from support.training import TinyModule, make_loader, make_trainer


def loaded(model: torch.nn.Module, path: Path) -> dict[str, torch.Tensor]:
    checkpoint: Any = mmcv_runner.load_checkpoint(model, str(path), strict=True)
    assert "state_dict" in checkpoint or path.name == "export.pth"
    return model.state_dict()


@pytest.mark.parametrize("background", [False, True])
def test_a_train_step_modules_file_fills_the_bare_model(tmp_path: Path, background: bool) -> None:
    model = job.make_model(0, "conv")
    hooks = HookAdapter([CheckpointHook(interval=1, background=background)])
    make_trainer(tmp_path, hooks).fit(
        TrainStepModule(model, job.make_optimizer(model)), *job.make_data(0)
    )
    found = loaded(job.make_model(5, "conv"), tmp_path / "epoch_1.pth")
    assert all(torch.equal(value, found[key]) for key, value in model.state_dict().items())


def test_a_plain_modules_file_fills_that_module_and_an_export_the_inner_one(tmp_path: Path) -> None:
    hook, module = CheckpointHook(interval=1), TinyModule()
    make_trainer(tmp_path, hook, enable_checkpointing=True).fit(module, make_loader())
    found = loaded(TinyModule(seed=9), tmp_path / "epoch_1.pth")
    assert all(torch.equal(value, found[key]) for key, value in module.state_dict().items())
    hook.export(str(tmp_path / "export.pth"), model=lambda module: module.net)
    found = loaded(torch.nn.Linear(4, 2), tmp_path / "export.pth")
    assert all(torch.equal(value, found[key]) for key, value in module.net.state_dict().items())
