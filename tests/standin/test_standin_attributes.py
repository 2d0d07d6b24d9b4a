"""The stand-in's hooks know of themselves what mmcv's know, and subclasses may change it."""

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

# what is another value here, and why nothing of an old file is lost
OTHER = {
    "base_lr": "() in the place of [] before a run",
    "base_momentum": "() in the place of [] before a run, and both bounds where there are two",
    "regular_lr": "() in the place of [] before a run",
    "regular_momentum": "() in the place of [] before a run",
}


class Idle(nn.Module):
    """A model whose steps do nothing."""

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
        warnings.simplefilter("ignore")  # of schedules that say something odd on purpose
        runner.run([DataLoader(range(ITERATIONS // 2))], [("train", 1)])
    return values.seen


def differing(hook: Any, theirs: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the attributes that a hook of ours does not have, or with another value."""
    for name, value in theirs.items():
        if not hasattr(hook, name):
            yield name, value, "absent"
            continue
        ours = getattr(hook, name)
        told = isinstance(value, str) and value.startswith("(")
        if not told and name not in OTHER and json.loads(json.dumps(ours)) != value:
            yield name, value, ours


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_attributes_are_mmcvs(name: str, tmp_path: Path) -> None:
    from mmcv.runner import HOOKS

    golden = GOLDEN["cases"][name]
    hook = HOOKS.build({"type": name, **golden["config"]})
    assert [*differing(hook, golden["before"])] == []
    train(hook, tmp_path)
    assert [*differing(hook, golden["after"])] == []


@pytest.mark.parametrize("name", GOLDEN["phases"])
def test_subclasses_that_write_phases_of_their_own(name: str, tmp_path: Path) -> None:
    import phased

    assert train(phased.HOOKS[name](), tmp_path) == GOLDEN["phases"][name]


def test_a_second_run_has_phases_of_its_own_length(tmp_path: Path) -> None:
    from mmcv.runner import HOOKS

    hook = HOOKS.build({"type": "CyclicLrUpdaterHook", "cyclic_times": 3})
    hook.lr_phases, hook.max_iter_per_phase = [[0, 1, 1, 10]], 1  # as a shorter run has left them
    train(hook, tmp_path)
    assert hook.lr_phases == [[0, 2, 1, 10], [2, 6, 10, 1e-4]]
