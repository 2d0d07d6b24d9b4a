"""Runners with custom loops equal real mmcv, on Lightning's strategy."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.golden import assert_close, recorded
from support.paths import GOLDEN
from support.processes import read_ranks, run_job
from support.standin import needs_lite

RECORDED = recorded("own_loops")["cases"]
RANKS = recorded("own_loops")["ranks"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The job, with mmcv's names from the stand-in."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    yield importlib.import_module("own_loops")
    del sys.modules["own_loops"]


@pytest.mark.parametrize("case", RECORDED)
def test_a_runner_with_its_own_loop_equals_mmcv(case: str, job: Any, tmp_path: Path) -> None:
    assert_close(job.run(case, tmp_path), RECORDED[case])


@needs_lite
def test_own_loops_and_tests_on_two_ranks_equal_mmcv(tmp_path: Path) -> None:
    run_job("own_loops", tmp_path)
    for rank, want in enumerate(RANKS):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found.keys() == want.keys()
        assert_close(found, want)
    in_order = [0.0, 1.0, 2.0, 3.0, 4.0]
    first, second = read_ranks(tmp_path, "test")
    averages = [[[[0.5, 2.0], [3.0, 2.0]], [0.5], [0.5]]] * 3
    assert first == {"found": [in_order] * 2, "bars": 2, "averages": averages}
    assert second == {"found": [None] * 2, "bars": 0, "averages": averages}
    assert not (tmp_path / "parts").exists()


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


def test_a_loop_outside_of_run_is_refused_instead_of_training_nothing(
    job: Any, tmp_path: Path
) -> None:
    model = job.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runner = job.EpochBasedRunner(model, optimizer=optimizer, max_epochs=1, **job.given(tmp_path))
    runner.run_iter(torch.rand(2, 2), train_mode=True)
    runner.call_hook("after_train_iter")  # no hook would step
    runner.register_optimizer_hook({"grad_clip": None})
    runner.call_hook("before_run")
    with pytest.raises(NotImplementedError, match=r"in run\(data_loaders, workflow\), also in an"):
        runner.call_hook("after_train_iter")


def test_an_error_in_the_loop_keeps_its_type(job: Any, tmp_path: Path) -> None:
    import logging

    class Fails(job.LoopInRun):
        def train(self, data_loader: Any, **kwargs: Any) -> None:
            raise KeyError("mine")

    runner = Fails(job.Model(), logger=logging.getLogger("own_loops"), max_epochs=1)
    with pytest.raises(KeyError, match="mine"):
        runner.run([DataLoader(range(2))], [("train", 1)])  # type: ignore[arg-type]


def test_before_run_reads_the_inner_iter_set_by_an_own_resume(job: Any, tmp_path: Path) -> None:
    """mmgen's DynamicIterBasedRunner sets ``_inner_iter`` in ``resume``."""
    import logging

    seen: list[int] = []

    class Reads(job.Hook):
        def before_run(self, runner: Any) -> None:
            seen.append(runner.inner_iter)

    runner = job.LoopInRun(job.Model(), logger=logging.getLogger("own_loops"), max_epochs=1)
    runner.optimizer = torch.optim.SGD(runner.model.parameters(), lr=0.1)
    runner.register_hook(Reads())
    runner._inner_iter = 3
    runner.run([DataLoader(torch.rand(2, 2), batch_size=2)], [("train", 1)])  # type: ignore[arg-type]
    assert seen == [3]


def test_a_runner_trains_with_the_optimizers_of_its_model(job: Any, tmp_path: Path) -> None:
    """The constructor of mmgen's DynamicIterBasedRunner takes the optimizers from the model."""
    import logging

    class OfTheModel(job.LoopInRun):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.optimizer = self.model.optimizer

    rates: list[Any] = []

    class Rates(job.Hook):
        def before_run(self, runner: Any) -> None:
            rates.append(runner.current_lr())

        after_train_iter = after_run = before_run

    model = job.Model()
    model.optimizer = {"net": torch.optim.SGD(model.parameters(), lr=0.1)}
    runner = OfTheModel(model, logger=logging.getLogger("own_loops"), max_epochs=1)
    runner.register_hook(Rates())
    runner.run([DataLoader(torch.rand(2, 2), batch_size=2)], [("train", 1)])  # type: ignore[arg-type]
    assert rates == [{"net": [0.1]}] * 3
