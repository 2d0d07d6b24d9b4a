"""Runners with a loop of their own do what they did under real mmcv, on Lightning's strategy."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.golden import assert_close, recorded
from support.paths import GOLDEN

RECORDED = recorded("own_loops")["cases"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The job, with mmcv's names from the stand-in."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    yield importlib.import_module("own_loops")
    del sys.modules["own_loops"]


@pytest.mark.parametrize("case", RECORDED)
def test_a_loop_of_ones_own_does_what_it_did_under_mmcv(
    case: str, job: Any, tmp_path: Path
) -> None:
    assert_close(job.run(case, tmp_path), RECORDED[case])


def test_backward_and_step_go_through_the_strategy(job: Any, tmp_path: Path) -> None:
    import logging

    steps = []

    class Counts(job.LoopInRun):
        def call_hook(self, name: str) -> None:
            super().call_hook(name)
            if name == "after_train_iter":
                steps.append(self.trainer.global_step)

    model = job.Model()
    runner = Counts(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        work_dir=str(tmp_path),
        logger=logging.getLogger("own_loops"),
        max_epochs=1,
        trainer_kwargs={"precision": "bf16-mixed"},
    )
    runner.register_training_hooks(None, {"grad_clip": None})
    data: Any = torch.rand(8, 2)
    runner.run([DataLoader(data, batch_size=2)], [("train", 1)])
    assert steps == [1, 2, 3, 4, 5, 6]  # each is a step of the Trainer's


def test_an_error_in_the_loop_keeps_its_type(job: Any, tmp_path: Path) -> None:
    import logging

    class Fails(job.LoopInRun):
        def train(self, data_loader: Any, **kwargs: Any) -> None:
            raise KeyError("mine")

    runner = Fails(job.Model(), logger=logging.getLogger("own_loops"), max_epochs=1)
    with pytest.raises(KeyError, match="mine"):
        runner.run([DataLoader(range(2))], [("train", 1)])  # type: ignore[arg-type]
