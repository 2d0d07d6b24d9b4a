"""Two that set one learning rate, or a warm-up longer than the run: reported when a fit starts.

Each message is compared with the rates that the steps had.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging
from lightning.pytorch.tuner import Tuner
from torch.optim import lr_scheduler

from lightning_hooks import (
    CyclicMomentumUpdaterHook,
    ExpLrUpdaterHook,
    FixedLrUpdaterHook,
    InvLrUpdaterHook,
    LrUpdaterHook,
    StepLrUpdaterHook,
    StepMomentumUpdaterHook,
    register_training_hooks,
)
from support.foreign_hooks import OptimizerHook
from support.training import NoValidation, fit, make_loader, make_trainer

BATCHES, EPOCHS = 4, 3


class Rates(Callback):
    """The rate that each optimizer step had, of the first optimizer."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        if optimizer is trainer.optimizers[0]:
            self.seen.append(optimizer.param_groups[0]["lr"])


class Scheduled(NoValidation):
    """Has a scheduler that Lightning steps by this config; or none."""

    def __init__(self, make: Callable[[Any], Any] | None = None, **config: Any) -> None:
        super().__init__(momentum=0)
        self.make, self.config = make, config

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        if self.make is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.make(optimizer), **self.config},
        }


def run(
    tmp_path: Path, *hooks: Any, module: Any = None, host: bool = False, **arguments: Any
) -> tuple[list[float], list[str]]:
    """Train; return the rate of each step, and the warnings."""
    rates = Rates()
    arguments.setdefault("max_epochs", EPOCHS)
    callbacks = [*arguments.pop("callbacks", []), rates]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(
            tmp_path,
            *hooks,
            module=module or Scheduled(),
            host=host,
            callbacks=callbacks,
            batches=arguments.pop("batches", BATCHES),
            **arguments,
        )
    texts = [str(one.message) for one in caught]
    found = [t for t in texts if "both set the" in t or "all set the" in t or "warm-up of" in t]
    return rates.seen, found


def by_epoch() -> LrUpdaterHook:
    return StepLrUpdaterHook(step=1, gamma=0.7)


def by_iter() -> LrUpdaterHook:
    return ExpLrUpdaterHook(gamma=0.97, by_epoch=False)


def warming(length: int = 6, ratio: float = 0.3) -> LrUpdaterHook:
    return FixedLrUpdaterHook(warmup="linear", warmup_iters=length, warmup_ratio=ratio)


def warming_long() -> LrUpdaterHook:
    return InvLrUpdaterHook(gamma=0.3, power=1, warmup="constant", warmup_iters=9, warmup_ratio=0.2)


ITERS = "ExpLrUpdaterHook"
STEPS = "StepLrUpdaterHook"
FIXED = "FixedLrUpdaterHook"


@pytest.mark.parametrize(
    ("first", "second", "winners", "steps"),
    [
        (by_epoch, by_iter, f"{ITERS} wins in every step", "222222222222"),
        (by_iter, by_epoch, f"{ITERS} wins in every step", "111111111111"),
        (
            warming,
            by_epoch,
            f"{FIXED} wins in the first 7 iterations and the rest of that epoch, {STEPS} after",
            "111111112222",
        ),
        (by_epoch, warming, f"{FIXED} wins in every step", "222222222222"),
        (
            lambda: StepLrUpdaterHook(step=[1]),
            lambda: StepLrUpdaterHook(step=[2]),
            f"{STEPS} (number 2 in their order) wins in every step",
            "222222222222",
        ),
        (
            by_iter,
            warming,
            f"{FIXED} wins in the first 7 iterations, {ITERS} after that",
            "222222211111",
        ),
        (
            warming_long,
            warming,
            f"{FIXED} wins in the first 7 iterations, InvLrUpdaterHook wins in the first 10 "
            f"iterations and the rest of that epoch, {FIXED} after that",
            "222222211111",
        ),
    ],
)
def test_two_hooks_on_one_optimizer(
    tmp_path: Path,
    first: Callable[[], Any],
    second: Callable[[], Any],
    winners: str,
    steps: str,
) -> None:
    both, (message,) = run(tmp_path, first(), second())
    hosted = run(tmp_path, first(), second(), host=True)
    assert hosted == (both, [message])
    alone = [run(tmp_path, make())[0] for make in (first, second)]
    for rate, ones, twos, winner in zip(both, *alone, steps, strict=True):
        assert rate == (ones, twos)[int(winner) - 1]
    assert "both set the learning rate of SGD (group 0)" in message
    assert f": {winners}" in message
    assert "; leave out all but one" in message


def test_several_are_one_warning_for_each_quantity(tmp_path: Path) -> None:
    three = [by_epoch(), by_iter(), StepLrUpdaterHook(step=2)]
    two = [StepMomentumUpdaterHook(step=1), CyclicMomentumUpdaterHook(by_epoch=False)]
    _, (rates, momenta) = run(tmp_path, *three, *two, module=NoValidation(), host=True)
    assert f"{STEPS} (number 1 in their order) and {ITERS} (number 2 in their order) and" in rates
    assert f"all set the learning rate of SGD (group 0): {ITERS} (number 2 in their" in rates
    assert "StepMomentumUpdaterHook and CyclicMomentumUpdaterHook both set the momentum" in momenta


def test_a_config_with_two(tmp_path: Path) -> None:
    hooks = register_training_hooks(
        lr_config={"policy": "step", "step": [1]},
        custom_hooks_config=[{"type": ITERS, "gamma": 0.9, "by_epoch": False}],
    )
    _, (message,) = run(tmp_path, hooks, **hooks.trainer_kwargs)
    assert f"{STEPS} and {ITERS} both set" in message
    assert f"{ITERS} wins in every step" in message


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
    """Sets the rate of the optimizer of this name."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.name = name

    def before_run(self, runner: Any) -> None:
        super().before_run(runner)
        self.base_lr = {self.name: self.base_lr[self.name]}


class OfAGroup(StepLrUpdaterHook):
    """Sets the rate of one group."""

    def _set_lr(self, runner: Any, lr_groups: Any) -> None:
        runner.optimizer.param_groups[0]["lr"] = lr_groups[0]


def test_two_hooks_on_two_optimizers_or_groups_are_no_conflict(tmp_path: Path) -> None:
    pair = [OfOne(name, step=2, gamma=gamma) for name, gamma in (("one", 0.1), ("other", 0.2))]
    module = TwoOptimizers()
    assert run(tmp_path, *pair, module=module)[1] == []
    assert [o.param_groups[0]["lr"] for o in module.trainer.optimizers] == [
        pytest.approx(0.01),
        pytest.approx(0.02),
    ]
    assert run(tmp_path, OfAGroup(step=1), by_epoch())[1] == []
    same = [OfOne("one", step=2), OfOne("one", step=1)]
    assert len(run(tmp_path, *same, module=TwoOptimizers(), host=True)[1]) == 1


def exponential(optimizer: Any) -> Any:
    return lr_scheduler.ExponentialLR(optimizer, 0.9)


def on_plateau(optimizer: Any) -> Any:
    return lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=10.0)


EACH_STEP = {"interval": "step"}
EACH_OTHER = {"interval": "step", "frequency": 2}
IN_ALL = "wins in every step"
UNTIL = "from the start of each epoch until {} is stepped after every "


@pytest.mark.parametrize(
    ("hook", "make", "config", "batches_of_step", "winner", "steps"),
    [
        (by_epoch, exponential, {}, 1, IN_ALL, "HHHHHHHHHHHH"),
        (by_iter, exponential, {}, 1, IN_ALL, "HHHHHHHHHHHH"),
        (by_iter, exponential, EACH_STEP, 1, IN_ALL, "HHHHHHHHHHHH"),
        (by_epoch, exponential, EACH_STEP, 1, f"wins {UNTIL}batch,", "HsssHsssHsss"),
        (by_epoch, exponential, EACH_OTHER, 1, f"wins {UNTIL}2 batches,", "HHssHHssHHss"),
        (by_epoch, exponential, EACH_STEP, 2, f"wins {UNTIL}2 batches,", "HsHsHs"),
        (
            by_epoch,
            exponential,
            {"interval": "step", "frequency": BATCHES},
            1,
            IN_ALL,
            "HHHHHHHHHHHH",
        ),
        (
            warming,
            exponential,
            EACH_STEP,
            1,
            f"in the first 7 iterations and {UNTIL.replace('until', 'each until')}".replace(
                "epoch each", "epoch, each"
            ),
            "HHHHHHHsHsss",
        ),
        (by_epoch, on_plateau, {"monitor": "train_loss"}, 1, IN_ALL, "HHHHHHHHHHHH"),
        (
            by_epoch,
            on_plateau,
            {"monitor": "train_loss", **EACH_STEP},
            1,
            f"wins {UNTIL}batch,",
            "HsssHsssHsss",
        ),
    ],
)
def test_a_hook_beside_a_scheduler(
    tmp_path: Path,
    hook: Callable[[], Any],
    make: Callable[[Any], Any],
    config: dict[str, Any],
    batches_of_step: int,
    winner: str,
    steps: str,
) -> None:
    accumulate = {"accumulate_grad_batches": batches_of_step}
    module = Scheduled(make, **config)
    both, (message,) = run(tmp_path, hook(), module=module, host=True, **accumulate)
    alone, none = run(tmp_path, hook(), **accumulate)
    assert none == []
    measured = "".join("H" if a == b else "s" for a, b in zip(both, alone, strict=True))
    assert measured == steps
    name = make(torch.optim.SGD([torch.zeros(1)], lr=1.0)).__class__.__name__
    assert f"{name} of SGD (group 0) and {type(hook()).__name__} both set the" in message
    assert winner.format(name) in message


@pytest.mark.filterwarnings("ignore:.*never moves")
def test_a_scheduler_in_a_run_by_iteration(tmp_path: Path) -> None:
    module = Scheduled(exponential, **EACH_STEP)
    both, (message,) = run(tmp_path, by_iter(), module=module, by_epoch=False)
    assert both == run(tmp_path, by_iter(), by_epoch=False)[0]
    assert f"{ITERS} wins in every step" in message
    both, (message,) = run(tmp_path, by_epoch(), module=Scheduled(exponential), by_epoch=False)
    assert both == run(tmp_path, module=Scheduled(exponential))[0]
    assert (
        f"{STEPS} wins from the start of the run until ExponentialLR is stepped, ExponentialLR"
        in message
    )


def test_a_scheduler_where_hooks_own_backward_is_never_stepped_and_said_so_once(
    tmp_path: Path,
) -> None:
    module = Scheduled(exponential)
    with pytest.warns(UserWarning, match="ExponentialLR is never stepped") as caught:
        fit(tmp_path, by_epoch(), OptimizerHook(), module=module, host=True)
    assert not [w for w in caught if "both set" in str(w.message)]


@pytest.mark.parametrize(("make", "host"), [(by_epoch, False), (by_iter, True), (warming, True)])
def test_lightnings_stochastic_weight_averaging(
    tmp_path: Path, make: Callable[[], Any], host: bool
) -> None:
    swa = StochasticWeightAveraging(swa_lrs=0.03, swa_epoch_start=2, annealing_epochs=1)
    both, (message,) = run(tmp_path, make(), host=host, callbacks=[swa], max_epochs=4)
    assert both == run(tmp_path, make(), max_epochs=4)[0]
    name = type(make()).__name__
    assert f"StochasticWeightAveraging and {name} both set the learning rate" in message
    assert f"{name} wins in every step" in message
    assert "write StochasticWeightAverageHook in place of StochasticWeightAveraging" in message
    swa = StochasticWeightAveraging(swa_lrs=0.03, swa_epoch_start=2, annealing_epochs=1)
    momentum = StepMomentumUpdaterHook(step=1)
    assert run(tmp_path, momentum, callbacks=[swa], module=NoValidation())[1] == []


def momentum_warming(length: int) -> Any:
    return StepMomentumUpdaterHook(
        step=1, warmup="linear", warmup_iters=length, warmup_ratio=0.95, by_epoch=False
    )


@pytest.mark.parametrize(
    ("make", "host", "arguments", "run_length"),
    [
        (warming, False, {}, 12),
        (momentum_warming, True, {"limit_train_batches": 2}, 6),
        (warming, True, {"overfit_batches": 1}, 3),
        (momentum_warming, False, {"max_epochs": -1, "max_steps": 5}, 5),
        (warming, True, {"max_epochs": -1, "max_steps": 2, "accumulate_grad_batches": 2}, 4),
        (momentum_warming, True, {"by_epoch": False}, 12),
    ],
)
def test_a_warm_up_longer_than_the_run(
    tmp_path: Path, make: Any, host: bool, arguments: dict[str, Any], run_length: int
) -> None:
    arguments = {"module": NoValidation(), "host": host, **arguments}
    _, (message,) = run(tmp_path, make(run_length + 1), **arguments)
    assert f"the warm-up of {run_length + 1} iterations is longer than the run of" in message
    assert f"give a warm-up of {run_length} at most" in message
    arguments["module"] = NoValidation()
    assert run(tmp_path, make(run_length), **arguments)[1] == []


def test_a_warm_up_in_epochs_or_steps(tmp_path: Path) -> None:
    def made(**arguments: Any) -> Any:
        return FixedLrUpdaterHook(warmup="linear", warmup_ratio=0.1, **arguments)

    assert run(tmp_path, made(warmup_iters=3, warmup_by_epoch=True))[1] == []
    _, (message,) = run(tmp_path, made(warmup_iters=4, warmup_by_epoch=True))
    assert "the warm-up of 16 iterations is longer than the run of 12" in message
    accumulate = {"accumulate_grad_batches": 2}
    assert run(tmp_path, made(warmup_iters=6, by_step=True), **accumulate)[1] == []
    _, (message,) = run(tmp_path, made(warmup_iters=7, by_step=True), **accumulate)
    assert "the warm-up of 7 optimizer steps is longer than the run of 6" in message


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_epochs": -1, "max_time": {"seconds": 0}},
        {"max_epochs": -1, "max_steps": -1, "callbacks": "stop"},
        {"fast_dev_run": True},
    ],
)
def test_a_run_of_unknown_length_has_no_such_warning(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            trainer.should_stop = True

    if "callbacks" in arguments:
        arguments = {**arguments, "callbacks": [Stop()]}
    assert run(tmp_path, warming(500), **arguments)[1] == []


def test_a_resumed_run_has_no_such_warning(tmp_path: Path) -> None:
    trainer = fit(tmp_path, warming(7), max_epochs=2, batches=BATCHES, module=NoValidation())
    path = tmp_path / "last.ckpt"
    trainer.save_checkpoint(path)
    resumed = {"ckpt_path": path, "max_epochs": 3}
    assert run(tmp_path, warming(7), module=NoValidation(), **resumed)[1] == []


class Tunable(Scheduled):
    lr = 0.1

    def __init__(self) -> None:
        super().__init__()


@pytest.mark.slow
def test_the_tuners_search_has_no_such_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer(tmp_path, warming(500), max_epochs=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Tuner(trainer).lr_find(Tunable(), make_loader(4), num_training=4)
    assert not [w for w in caught if "lightning_hooks" in str(w.filename)]
