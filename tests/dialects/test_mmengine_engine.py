"""mmengine's loops in Lightning, without mmengine: see also tests/sister_code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.dialects.mmengine.engine import Engine
from support.training import make_loader


class Loop:
    """As far as needed, mmengine's training loops."""

    def __init__(self, runner: Any, length: int) -> None:
        self.runner = runner
        self.dataloader = make_loader(3)
        self.dataloader_iterator = self.endless()
        self._epoch = self._iter = 0
        self.max_epochs = self.max_iters = length
        self.val_begin, self.val_interval = 1, 2

    epoch = property(lambda self: self._epoch)
    iter = property(lambda self: self._iter)

    def endless(self) -> Iterator[Any]:
        while True:
            yield from self.dataloader

    def _decide_current_val_interval(self) -> None:
        pass

    def run_iter(self, *batch: Any) -> None:
        self.runner.call_hook(f"step {self._epoch} {self._iter}")
        self.runner.step(batch[-1])
        self._iter += 1


class Runner:
    """As far as needed, mmengine's Runner."""

    def __init__(self, folder: Path, length: int = 3) -> None:
        self.work_dir = str(folder)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.optim_wrapper = self
        self.train_loop = Loop(self, length)
        self.val_loop = self
        self.called: list[str] = []

    def call_hook(self, name: str, **kwargs: Any) -> None:
        self.called.append(name)

    def step(self, batch: Any) -> None:
        self.model(batch[0]).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self) -> None:
        """Validate."""
        self.called.append("validate")


class Counts(Callback):
    steps = 0

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self.steps = trainer.global_step


def test_lightning_runs_the_epochs_of_the_loop(tmp_path: Path) -> None:
    runner, callback = Runner(tmp_path), Counts()
    Engine(runner, {"callbacks": [callback]}).train_epochs(runner.train_loop)
    epochs = [
        ["before_train_epoch", *(f"step {e} {3 * e + i}" for i in range(3)), "after_train_epoch"]
        for e in range(3)
    ]
    first, second, third = epochs
    passes = [*first, *second, "validate", *third, "validate"]
    assert runner.called == ["before_train", *passes, "after_train"]
    assert callback.steps == 9


def test_lightning_runs_the_iterations_of_the_loop(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 5)
    Engine(runner, {}).train_iterations(runner.train_loop)
    steps = [f"step 0 {i}" for i in range(5)]
    passes = [*steps[:2], "validate", *steps[2:4], "validate", steps[4], "validate"]
    begin, end = ["before_train", "before_train_epoch"], ["after_train_epoch", "after_train"]
    assert runner.called == [*begin, *passes, *end]


def test_a_run_that_is_over_trains_nothing(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.train_loop._epoch = 3
    Engine(runner, {}).train_epochs(runner.train_loop)
    assert runner.called == ["before_train", "after_train"]


@pytest.mark.parametrize(
    ("name", "entry"),
    [("max_epochs", "train_cfg"), ("strategy", "mmengine's launcher and model_wrapper_cfg")],
)
def test_arguments_set_by_the_config_are_refused(tmp_path: Path, name: str, entry: str) -> None:
    with pytest.raises(ValueError, match=f"must not have {name}: as in mmengine, {entry} sets it"):
        Engine(Runner(tmp_path), {name: 2})
