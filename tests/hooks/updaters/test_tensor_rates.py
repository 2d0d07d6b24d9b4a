"""Rates and momenta stored by an optimizer as tensors or numpy numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    FixedLrUpdaterHook,
    Hook,
    LinearAnnealingLrUpdaterHook,
    LinearAnnealingMomentumUpdaterHook,
    OneCycleLrUpdaterHook,
    OneCycleMomentumUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
    StepMomentumUpdaterHook,
    TextLoggerHook,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class Module(TinyModule):
    """A module with one Adam and a parameter group for each of weight and bias."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": [one]} for one in self.net.parameters()]
        return torch.optim.Adam(groups, foreach=False, **self.options)


class Recorder(Hook):
    """Records an option of all parameter groups in each iteration."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.held: list[list[Any]] = []
        self.values: list[list[float]] = []

    def before_train_iter(self, runner: Any) -> None:
        """Record the groups' entries."""
        entries = [group[self.key] for group in runner.optimizer.param_groups]
        self.held.append(entries)
        self.values.append([float(e[0] if self.key == "betas" else e) for e in entries])


def fit(tmp_path: Path, hook: Any, key: str = "lr", **options: Any) -> Recorder:
    """Train two epochs of four batches."""
    seen = Recorder(key)
    make_trainer(tmp_path, hook, seen, max_epochs=2).fit(Module(**options), make_loader(4))
    return seen


LR_HOOKS = {
    "cosine": lambda: CosineAnnealingLrUpdaterHook(min_lr=0.0),
    "poly": lambda: PolyLrUpdaterHook(by_epoch=False),
    "step": lambda: StepLrUpdaterHook(step=[1]),
    "one cycle": lambda: OneCycleLrUpdaterHook(max_lr=[0.5, 1.0]),
    "warm-up": lambda: FixedLrUpdaterHook(warmup="linear", warmup_iters=4),
    "base_lr": lambda: LinearAnnealingLrUpdaterHook(min_lr=0.0, base_lr=[0.5, 1.0]),
}


@pytest.mark.parametrize("kind", ["float32", "float64", "numpy"])
@pytest.mark.parametrize("name", LR_HOOKS)
def test_a_rate_is_what_a_float_would_be(tmp_path: Path, name: str, kind: str) -> None:
    rate: Any = numpy.float32(0.5)
    if kind != "numpy":
        rate = torch.tensor(0.5, dtype=getattr(torch, kind))
    expected = fit(tmp_path, LR_HOOKS[name](), lr=0.5).values
    seen = fit(tmp_path, LR_HOOKS[name](), lr=rate)
    assert seen.values == [pytest.approx(row, rel=1e-6, abs=1e-9) for row in expected]
    assert kind == "numpy" or seen.held[-1][0] is rate  # a compiled step holds the tensor


@pytest.mark.parametrize("adds", [False, True])
def test_groups_and_defaults_share_no_tensor(tmp_path: Path, adds: bool) -> None:
    class Add(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if adds and runner.epoch == 0:
                runner.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})

    seen = Recorder("lr")
    hook = StepLrUpdaterHook(step=[1], base_lr=None if adds else [0.5, 1.0])
    trainer = make_trainer(tmp_path, hook, Add(), seen, max_epochs=2)
    trainer.fit(Module(lr=torch.tensor(0.5)), make_loader(1))
    after = [0.05, 0.05, 0.05] if adds else [0.05, 0.1]
    assert seen.values[-1] == pytest.approx(after)


MOMENTUM_HOOKS = {
    "line": lambda: LinearAnnealingMomentumUpdaterHook(min_momentum=0.5, by_epoch=False),
    "step": lambda: StepMomentumUpdaterHook(step=1),
    "one cycle": lambda: OneCycleMomentumUpdaterHook(),
}


@pytest.mark.parametrize("name", MOMENTUM_HOOKS)
def test_betas_in_tensors(tmp_path: Path, name: str) -> None:
    expected = fit(tmp_path, MOMENTUM_HOOKS[name](), "betas", betas=(0.75, 0.5)).values
    betas = torch.tensor(0.75), torch.tensor(0.5)
    seen = fit(tmp_path, MOMENTUM_HOOKS[name](), "betas", lr=torch.tensor(0.1), betas=betas)
    assert seen.values == [pytest.approx(row, rel=1e-6) for row in expected]
    assert seen.held[-1][0][0] is betas[0]
    assert seen.held[-1][0][1] == 0.5


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_a_resume_goes_on_with_the_same_rates(tmp_path: Path) -> None:
    class Save(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 2:
                runner.trainer.save_checkpoint(tmp_path / "third.ckpt")

    def hook() -> Any:
        return CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False)

    whole, rest = Recorder("lr"), Recorder("lr")
    rate = torch.tensor(0.5)
    make_trainer(tmp_path, hook(), Save(), whole, max_epochs=2).fit(
        Module(lr=rate.clone()), make_loader(4)
    )
    trainer = make_trainer(tmp_path, hook(), rest, max_epochs=2)
    trainer.fit(Module(lr=rate), make_loader(4), ckpt_path=tmp_path / "third.ckpt")
    assert rest.values == whole.values[3:]


def test_the_log_has_the_rate_of_each_line(tmp_path: Path) -> None:
    hook = LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False)
    trainer = make_trainer(tmp_path, hook, TextLoggerHook(interval=2), max_epochs=1)
    trainer.fit(Module(lr=torch.tensor(0.5)), make_loader(4))
    lines = next(tmp_path.glob("**/*.log.json")).read_text().splitlines()
    rates = [line.split('"lr": ')[1].split(",")[0] for line in lines if '"lr"' in line]
    assert rates == ["0.375", "0.125"]


class NoRate(torch.optim.Optimizer):
    """An optimizer without a rate."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"size": 0.1})

    def step(self, closure: Any = None) -> Any:
        """Compute the loss."""
        return closure()


@pytest.mark.parametrize("base_lr", [None, 0.1])
def test_an_optimizer_without_a_rate_is_named(tmp_path: Path, base_lr: float | None) -> None:
    class Unrated(TinyModule):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return NoRate(self.parameters())

    hook = StepLrUpdaterHook(step=1, base_lr=base_lr)
    with pytest.raises(
        ValueError, match=r"needs an optimizer with learning rate: NoRate \(group 0"
    ):
        make_trainer(tmp_path, hook, max_epochs=1).fit(Unrated(), make_loader(2))
