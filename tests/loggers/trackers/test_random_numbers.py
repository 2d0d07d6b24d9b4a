"""Trackers leave the training's random numbers alone, whenever their clients start."""

from __future__ import annotations

import random
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lightning_hooks
from lightning_hooks import (
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    NeptuneLoggerHook,
)
from support import contract
from support.training import TinyModule, make_loader, make_trainer

TRACKERS = [
    getattr(lightning_hooks, name) for name in sorted(contract.TRACKERS - {"LightningLoggerHook"})
]
SLOW = pytest.mark.slow
pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients', of each other and of Python
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Augmenting(TinyModule):
    """Draws from all three generators in each step, as augmentations do."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[float, float, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return self.loss(batch)


class WaitForClients(Hook):
    """Waits in the second iteration until the client has started and taken a record."""

    priority = "LOWEST"

    def __init__(self, trackers: list[Any]) -> None:
        self.trackers = trackers

    def after_train_iter(self, runner: Any) -> None:
        end = time.monotonic() + 60
        while runner.iter == 1 and time.monotonic() < end:
            states = [tracker.status() for tracker in self.trackers]
            if all(state["sent"] or state["error"] for state in states):
                return
            time.sleep(0.02)


def drawn(folder: Path, trackers: list[Any]) -> list[tuple[float, float, float]]:
    """Return the numbers that a seeded training has drawn."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    module = Augmenting()
    adapter = HookAdapter([*trackers, WaitForClients(trackers)], work_dir=str(folder / "work"))
    make_trainer(folder, adapter).fit(module, make_loader(6), make_loader(1))
    return module.drawn


@pytest.mark.parametrize(
    "trackers",
    [pytest.param([MlflowLoggerHook], id="MLflow"), pytest.param(TRACKERS, id="all", marks=SLOW)],
)
def test_trackers_draw_none_of_the_training_s_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trackers: list[Any]
) -> None:
    monkeypatch.setattr("lightning_hooks.loggers.trackers.base.LINGER", 0.0)
    installed = [each for each in trackers if find_spec(each.package) is not None]
    hooks = [each(interval=1, by_epoch=each is not DvcliveLoggerHook) for each in installed]
    with_trackers = drawn(tmp_path / "all", hooks)
    assert all(hook.status()["sent"] > 6 for hook in hooks)
    assert with_trackers == drawn(tmp_path / "none", [])


def test_a_server_that_does_not_answer_draws_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    dead = MlflowLoggerHook(interval=1, timeout=0.0, log_model=False)
    assert drawn(tmp_path / "one", [dead]) == drawn(tmp_path / "none", [])


def test_neptune_draws_from_the_system_only_while_a_run_starts(tmp_path: Path) -> None:
    pytest.importorskip("neptune")
    from neptune.internal.operation_processors import utils

    hook = NeptuneLoggerHook(interval=1)
    assert drawn(tmp_path / "one", [hook]) == drawn(tmp_path / "none", [])
    assert hook.status()["error"] is None
    assert utils.random is random
