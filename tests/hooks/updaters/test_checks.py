"""Schedules warn at the start of a fit of rival schedulers and of a warm-up beyond the run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging
from torch.optim.lr_scheduler import ExponentialLR

from lightning_hooks import (
    CyclicMomentumUpdaterHook,
    ExpLrUpdaterHook,
    FixedLrUpdaterHook,
    LrUpdaterHook,
    StepLrUpdaterHook,
    StepMomentumUpdaterHook,
    register_training_hooks,
)
from support.foreign_hooks import OptimizerHook
from support.training import NoValidation, fit

ITERS, STEPS = "ExpLrUpdaterHook", "StepLrUpdaterHook"


class Scheduled(NoValidation):
    """A module with a scheduler for Lightning to step."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [ExponentialLR(optimizer, 0.9)]


class Rates(Callback):
    """The rate of each optimizer step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


def warned(tmp_path: Path, *hooks: Any, module: Any = None, **arguments: Any) -> list[str]:
    """Train; return the warnings of rivals and warm-ups."""
    options = {"max_epochs": 3, "batches": 4, **arguments}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tmp_path, *hooks, module=module or NoValidation(), **options)
    texts = [str(one.message) for one in caught]
    return [text for text in texts if "set the" in text or "warm-up of" in text]


def by_epoch() -> LrUpdaterHook:
    return StepLrUpdaterHook(step=1, gamma=0.7)


def by_iter() -> LrUpdaterHook:
    return ExpLrUpdaterHook(gamma=0.97, by_epoch=False)


def warming(length: int) -> LrUpdaterHook:
    return FixedLrUpdaterHook(warmup="linear", warmup_iters=length, warmup_ratio=0.3)


@pytest.mark.parametrize("host", [False, True], ids=["bare", "adapter"])
def test_two_hooks_on_one_optimizer(tmp_path: Path, host: bool) -> None:
    rates = Rates(), Rates()
    (message,) = warned(tmp_path, by_epoch(), by_iter(), host=host, callbacks=[rates[0]])
    assert message == (
        f"{STEPS} and {ITERS} set the learning rate of SGD (group 0): each step takes the value "
        f"that was set last; leave out all but one. {ITERS} starts from 0.1, the groups' "
        "initial_lr; base_lr=... gives another base rate"
    )
    assert warned(tmp_path, by_iter(), host=host, callbacks=[rates[1]]) == []
    assert rates[0].seen == rates[1].seen


def test_several_are_one_warning_for_each_quantity(tmp_path: Path) -> None:
    momenta = [StepMomentumUpdaterHook(step=1), CyclicMomentumUpdaterHook(by_epoch=False)]
    hooks = [by_epoch(), by_iter(), StepLrUpdaterHook(step=2), *momenta]
    rates, momentum = warned(tmp_path, *hooks, host=True)
    assert rates.startswith(f"{STEPS} and {ITERS} and {STEPS} set the learning rate of SGD")
    assert "StepMomentumUpdaterHook and CyclicMomentumUpdaterHook set the momentum" in momentum


def test_a_config_with_two(tmp_path: Path) -> None:
    hooks = register_training_hooks(
        lr_config={"policy": "step", "step": [1]},
        custom_hooks_config=[{"type": ITERS, "gamma": 0.9, "by_epoch": False}],
    )
    (message,) = warned(tmp_path, hooks, **hooks.trainer_kwargs)
    assert f"{STEPS} and {ITERS} set" in message


class TwoOptimizers(NoValidation):
    optimizer_names = ("one", "other")

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([one], lr=0.1) for one in self.parameters()]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.manual_backward(self.loss(batch))
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()


class OfOne(StepLrUpdaterHook):
    """A schedule for the optimizer of the given name."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.name = name

    def before_run(self, runner: Any) -> None:
        super().before_run(runner)
        self.base_lr = {self.name: self.base_lr[self.name]}


class OfAGroup(StepLrUpdaterHook):
    """A schedule for the first parameter group."""

    def _set_lr(self, runner: Any, lr_groups: Any) -> None:
        runner.optimizer.param_groups[0]["lr"] = lr_groups[0]


def test_two_hooks_on_two_optimizers_or_groups_are_no_rivals(tmp_path: Path) -> None:
    pair = [OfOne(name, step=2, gamma=gamma) for name, gamma in (("one", 0.1), ("other", 0.2))]
    module = TwoOptimizers()
    assert warned(tmp_path, *pair, module=module) == []
    assert [o.param_groups[0]["lr"] for o in module.trainer.optimizers] == [
        pytest.approx(0.01),
        pytest.approx(0.02),
    ]
    assert warned(tmp_path, OfAGroup(step=1), by_epoch()) == []
    same = [OfOne("one", step=2), OfOne("one", step=1)]
    assert len(warned(tmp_path, *same, module=TwoOptimizers(), host=True)) == 1


def test_a_hook_beside_a_scheduler(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, by_epoch(), module=Scheduled(), host=True)
    assert f"{STEPS} and ExponentialLR set the learning rate of SGD (group 0)" in message
    assert f"{STEPS} starts from 0.1, the groups' initial_lr; base_lr=... gives" in message
    assert warned(tmp_path, StepMomentumUpdaterHook(step=1), module=NoValidation()) == []


def test_a_base_rate_of_ones_own_beside_a_librarys_scheduler(tmp_path: Path) -> None:
    for given, first in ((None, 0.1), (0.5, 0.5), ([2.0], 2.0), ({"SGD": 3.0}, 3.0)):
        rates = Rates()
        hook = StepLrUpdaterHook(step=1, gamma=0.1, base_lr=given)
        (message,) = warned(tmp_path, hook, module=Scheduled(), callbacks=[rates])
        assert rates.seen[::4] == pytest.approx([first, 0.1 * first, 0.01 * first])
        assert given is None or f"{STEPS} starts from {first}, base_lr" in message


def test_a_scheduler_where_hooks_own_backward_is_never_stepped_and_said_so_once(
    tmp_path: Path,
) -> None:
    with pytest.warns(UserWarning, match="ExponentialLR is never stepped") as caught:
        fit(tmp_path, by_epoch(), OptimizerHook(), module=Scheduled(), host=True)
    assert not [w for w in caught if "set the" in str(w.message)]


def test_lightnings_stochastic_weight_averaging(tmp_path: Path) -> None:
    def swa() -> Any:
        return StochasticWeightAveraging(swa_lrs=0.03, swa_epoch_start=2, annealing_epochs=1)

    (message,) = warned(tmp_path, by_epoch(), callbacks=[swa()])
    assert f"{STEPS} and StochasticWeightAveraging set the learning rate" in message
    assert warned(tmp_path, StepMomentumUpdaterHook(step=1), callbacks=[swa()]) == []


@pytest.mark.parametrize(
    ("arguments", "run_length"),
    [
        ({}, 12),
        ({"limit_train_batches": 2}, 6),
        ({"max_epochs": -1, "max_steps": 2, "accumulate_grad_batches": 2}, 4),
        ({"by_epoch": False, "host": True}, 12),
    ],
)
def test_a_warm_up_longer_than_the_run(
    tmp_path: Path, arguments: dict[str, Any], run_length: int
) -> None:
    (message,) = warned(tmp_path, warming(run_length + 1), **arguments)
    assert message == (
        f"FixedLrUpdaterHook of SGD (group 0): the warm-up of {run_length + 1} iterations is "
        f"longer than the run of {run_length}"
    )
    assert warned(tmp_path, warming(run_length), **arguments) == []


def test_a_warm_up_in_epochs_or_steps(tmp_path: Path) -> None:
    def made(**arguments: Any) -> Any:
        return FixedLrUpdaterHook(warmup="linear", warmup_ratio=0.1, **arguments)

    (message,) = warned(tmp_path, made(warmup_iters=4, warmup_by_epoch=True))
    assert "the warm-up of 16 iterations is longer than the run of 12" in message
    accumulate = {"accumulate_grad_batches": 2}
    (message,) = warned(tmp_path, made(warmup_iters=7, by_step=True), **accumulate)
    assert "the warm-up of 7 optimizer steps is longer than the run of 6" in message


@pytest.mark.parametrize(
    "arguments", [{"max_epochs": -1, "max_time": {"seconds": 0}}, {"fast_dev_run": True}]
)
def test_a_run_of_unknown_length_has_no_such_warning(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    assert warned(tmp_path, warming(500), **arguments) == []
