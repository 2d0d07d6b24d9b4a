"""``ScheduleFreeHook`` with the optimizers of real packages: a plain loop, and a resume."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, ScheduleFreeHook
from support.schedule_free import FreeModule, by_hand
from support.training import fit

OPTIMIZERS = [
    ("schedulefree", "SGDScheduleFree"),
    ("schedulefree", "AdamWScheduleFree"),
    ("schedulefree", "RAdamScheduleFree"),
    ("pytorch_optimizer", "ScheduleFreeAdamW"),
]


@pytest.mark.parametrize(("package", "name"), OPTIMIZERS)
def test_trains_as_a_plain_loop_and_resumes(tmp_path: Path, package: str, name: str) -> None:
    make: Any = getattr(importlib.import_module(package), name)
    whole, resumed = FreeModule(make), FreeModule(make)
    options = {"val": 1, "max_epochs": 3}
    fit(tmp_path, ScheduleFreeHook(), CheckpointHook(interval=1), module=whole, **options)
    for seen, wanted in zip(whole.validated, by_hand(make, 3), strict=True):
        torch.testing.assert_close(seen, wanted)  # each file is a switch more
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)["state_dict"]["net.weight"]
    torch.testing.assert_close(saved, whole.validated[0])
    hooks = [ScheduleFreeHook(), CheckpointHook(interval=1)]
    options |= {"module": resumed, "ckpt_path": tmp_path / "epoch_1.pth"}
    fit(tmp_path / "on", *hooks, **options)
    assert torch.equal(resumed.net.weight, whole.net.weight)


def test_without_the_hook_the_package_raises(tmp_path: Path) -> None:
    import schedulefree

    with pytest.raises(Exception, match="train mode"):
        fit(tmp_path, CheckpointHook(), module=FreeModule(schedulefree.SGDScheduleFree), val=1)
