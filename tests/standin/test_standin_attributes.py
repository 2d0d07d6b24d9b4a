"""The stand-in's hooks have the attributes of mmcv's hooks."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from support.golden import recorded

GOLDEN = recorded("attributes")
ITERATIONS = 20

PHASES = "the native schedules are functions of the position and keep no list of phases"
OTHER = {
    **dict.fromkeys(["_base_momentum", "_max_lr", "_max_momentum", "anneal_func"], PHASES),
    **dict.fromkeys(["lr_phases", "max_iter_per_phase", "momentum_phases", "use_beta1"], PHASES),
    "base_lr": "() in the place of [] before a run",
    "base_momentum": "() in the place of [] before a run, and both bounds where there are two",
    "regular_lr": "() in the place of [] before a run",
    "regular_momentum": "() in the place of [] before a run",
}


class Idle(nn.Module):
    """A model with empty steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(1))])

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        return {"loss": self.weights[0].sum(), "log_vars": {}, "num_samples": 1}


def train(hook: Any, work_dir: Path) -> list[list[float]]:
    """Train two epochs with a hook of the stand-in's; return the rates and momenta."""
    from mmcv.runner import EpochBasedRunner, Hook

    class Values(Hook):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seen: list[list[float]] = []

        def after_train_iter(self, runner: Any) -> None:
            group = runner.optimizer.param_groups[0]
            self.seen.append([group["lr"], group["momentum"]])

    model, values = Idle(), Values()
    runner = EpochBasedRunner(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        work_dir=str(work_dir),
        logger=logging.Logger("silent"),
        max_epochs=2,
    )
    runner.register_hook(hook)
    runner.register_hook(values, priority="LOWEST")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deliberately odd schedules warn
        runner.run([DataLoader(range(ITERATIONS // 2))], [("train", 1)])
    return values.seen


def differing(hook: Any, theirs: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the attributes missing from our hook or with another value."""
    for name in theirs.keys() - OTHER.keys():
        value = theirs[name]
        ours = getattr(hook, name, "absent")
        told = isinstance(value, str) and value.startswith("(")
        if ours == "absent" or (not told and json.loads(json.dumps(ours)) != value):
            yield name, value, ours


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_attributes_are_mmcvs(name: str, tmp_path: Path) -> None:
    from mmcv.runner import HOOKS

    golden = GOLDEN["cases"][name]
    hook = HOOKS.build({"type": name, **golden["config"]})
    assert [*differing(hook, golden["before"])] == []
    train(hook, tmp_path)
    assert [*differing(hook, golden["after"])] == []
