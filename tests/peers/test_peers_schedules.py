"""The table of docs/families/learning_rate.md: schedules of other libraries, and ours for each."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lightning_hooks as h
from lightning_hooks.schedules import sample

STEPS, WARM, LR = 40, 8, 0.5
WARM_UP: dict[str, Any] = {
    "by_epoch": False,
    "warmup": "linear",
    "warmup_iters": WARM,
    "warmup_ratio": 1e-12,
}


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR, momentum=0.9)


def rates(make: Callable[[torch.optim.Optimizer], Any], steps: int = STEPS) -> list[float]:
    """Return the rate of each step, of a scheduler that steps after the optimizer."""
    sgd = optimizer()
    scheduler, found = make(sgd), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(steps):
            found.append(sgd.param_groups[0]["lr"])
            sgd.step()
            # timm's take the number of the next step
            if hasattr(scheduler, "step_update"):
                scheduler.step_update(step + 1)
            else:
                scheduler.step()
    return found


def ours(hook: Any, steps: int = STEPS, base: float = LR) -> list[float]:
    return sample(hook, max_epochs=1, iters_per_epoch=steps, base_lr=base)


def after_warm_up(*phases: dict[str, Any]) -> Any:
    """A warm-up over a phase of its own: the policies begin after it."""
    return h.PhasesLrUpdaterHook([{"policy": "fixed", "length": WARM}, *phases], **WARM_UP)


def by_iter(name: str, **arguments: Any) -> Any:
    return getattr(h, f"{name}LrUpdaterHook")(**arguments, by_epoch=False)


# -- torch -------------------------------------------------------------------------------------

torch_lr = torch.optim.lr_scheduler
TORCH: dict[str, tuple[Any, Any]] = {
    "StepLR": (lambda o: torch_lr.StepLR(o, 7, 0.5), by_iter("Step", step=7, gamma=0.5)),
    "MultiStepLR": (
        lambda o: torch_lr.MultiStepLR(o, [5, 30], 0.5),
        by_iter("Step", step=[5, 30], gamma=0.5),
    ),
    "ExponentialLR": (lambda o: torch_lr.ExponentialLR(o, 0.9), by_iter("Exp", gamma=0.9)),
    "PolynomialLR": (
        lambda o: torch_lr.PolynomialLR(o, STEPS, 2.0),
        by_iter("Poly", power=2.0),
    ),
    "CosineAnnealingLR": (
        lambda o: torch_lr.CosineAnnealingLR(o, STEPS, 0.01),
        by_iter("CosineAnnealing", min_lr=0.01),
    ),
    "CosineAnnealingWarmRestarts": (
        lambda o: torch_lr.CosineAnnealingWarmRestarts(o, 10, 1, 0.01),
        by_iter("CosineRestart", periods=[10] * 4, restart_weights=[1] * 4, min_lr=0.01),
    ),
    "ConstantLR": (
        lambda o: torch_lr.ConstantLR(o, 0.25, WARM),
        by_iter("Fixed", warmup="constant", warmup_iters=WARM, warmup_ratio=0.25),
    ),
    "LinearLR": (
        lambda o: torch_lr.LinearLR(o, 0.25, 1.0, WARM),
        by_iter("Fixed", warmup="linear", warmup_iters=WARM, warmup_ratio=0.25),
    ),
    "SequentialLR": (
        lambda o: torch_lr.SequentialLR(
            o,
            [
                torch_lr.ConstantLR(o, 1.0, 1),
                torch_lr.CosineAnnealingLR(o, 20, 0.01),
                torch_lr.ExponentialLR(o, 0.9),
            ],
            [10, 30],
        ),
        by_iter(
            "Phases",
            phases=[
                {"policy": "fixed", "length": 10},
                {"policy": "CosineAnnealing", "min_lr": 0.01, "length": 20},
                {"policy": "exp", "gamma": 0.9, "restart": True},
            ],
        ),
    ),
    "ChainedScheduler": (
        lambda o: torch_lr.ChainedScheduler(
            [torch_lr.LinearLR(o, 0.25, 1.0, WARM), torch_lr.ExponentialLR(o, 0.9)]
        ),
        by_iter("Exp", gamma=0.9, warmup="linear", warmup_iters=WARM, warmup_ratio=0.25),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    make, hook = TORCH[name]
    assert ours(hook) == pytest.approx(rates(make), rel=1e-9, abs=1e-9)


# -- transformers ------------------------------------------------------------------------------

WARM_STEPS = {"num_warmup_steps": WARM}
WHOLE = {**WARM_STEPS, "num_training_steps": STEPS}
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "constant": ("get_constant_schedule", {}, by_iter("Fixed", total=1)),
    "constant_with_warmup": (
        "get_constant_schedule_with_warmup",
        WARM_STEPS,
        h.FixedLrUpdaterHook(**WARM_UP),
    ),
    "linear": (
        "get_linear_schedule_with_warmup",
        WHOLE,
        after_warm_up({"policy": "LinearAnnealing", "min_lr": 0}),
    ),
    "cosine": (
        "get_cosine_schedule_with_warmup",
        WHOLE,
        after_warm_up({"policy": "CosineAnnealing", "min_lr": 0}),
    ),
    "cosine_with_restarts": (
        "get_cosine_with_hard_restarts_schedule_with_warmup",
        {**WHOLE, "num_cycles": 2},
        after_warm_up(
            {"policy": "CosineRestart", "periods": [16, 16], "restart_weights": [1, 1], "min_lr": 0}
        ),
    ),
    "polynomial": (
        "get_polynomial_decay_schedule_with_warmup",
        {**WHOLE, "power": 2.0, "lr_end": 0.01},
        after_warm_up({"policy": "poly", "power": 2.0, "min_lr": 0.01}),
    ),
    "inverse_sqrt": (
        "get_inverse_sqrt_schedule",
        {**WARM_STEPS, "timescale": 10},
        after_warm_up({"policy": "inv", "gamma": 1 / 10, "power": 0.5}),
    ),
    "cosine_with_min_lr": (
        "get_cosine_with_min_lr_schedule_with_warmup",
        {**WHOLE, "min_lr_rate": 0.1},
        after_warm_up({"policy": "CosineAnnealing", "min_lr_ratio": 0.1}),
    ),
    **{
        f"warmup_stable_decay, {shape}": (
            "get_wsd_schedule",
            {**WHOLE, "num_decay_steps": 10, "decay_type": shape, "min_lr_ratio": 0.1},
            h.WSDLrUpdaterHook(
                decay=10, shape=shape, min_lr_ratio=0.1, **{**WARM_UP, "warmup_ratio": 0.1}
            ),
        )
        for shape in ("linear", "cosine", "1-sqrt")
    },
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str) -> None:
    optimization = importlib.import_module("transformers.optimization")
    function, arguments, hook = TRANSFORMERS[name]
    theirs = rates(lambda o: getattr(optimization, function)(o, **arguments))
    assert ours(hook) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


# -- timm --------------------------------------------------------------------------------------

WARM_TIMM = {"warmup_t": WARM, "warmup_lr_init": LR / 4, "t_in_epochs": False}
OWN_WARM_UP = {"warmup": "linear", "warmup_iters": WARM, "warmup_ratio": 0.25, "by_epoch": False}
TIMM: dict[str, tuple[str, dict[str, Any], Any]] = {
    "cosine": (
        "cosine_lr.CosineLRScheduler",
        {"t_initial": STEPS - WARM, "lr_min": 0.01, "warmup_prefix": True, **WARM_TIMM},
        h.PhasesLrUpdaterHook(
            [
                {"policy": "fixed", "length": WARM},
                {"policy": "CosineAnnealing", "min_lr": 0.01},
            ],
            **OWN_WARM_UP,
        ),
    ),
    "step": (
        "step_lr.StepLRScheduler",
        {"decay_t": 7, "decay_rate": 0.5, "t_in_epochs": False},
        by_iter("Step", step=7, gamma=0.5),
    ),
    "multistep": (
        "multistep_lr.MultiStepLRScheduler",
        {"decay_t": [6, 31], "decay_rate": 0.5, "t_in_epochs": False},  # from t + 1 on
        by_iter("Step", step=[5, 30], gamma=0.5),
    ),
    "poly": (
        "poly_lr.PolyLRScheduler",
        {"t_initial": 30, "power": 2.0, "lr_min": 0.01, "t_in_epochs": False, "cycle_limit": 1},
        by_iter("Poly", power=2.0, min_lr=0.01, total=30),
    ),
}


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str) -> None:
    path, arguments, hook = TIMM[name]
    module, kind = path.split(".")
    scheduler = getattr(importlib.import_module(f"timm.scheduler.{module}"), kind)
    theirs = rates(lambda o: scheduler(o, **arguments))
    assert ours(hook) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


# -- REX ---------------------------------------------------------------------------------------


def test_rex() -> None:
    from pytorch_optimizer.lr_scheduler.rex import REXScheduler

    theirs = rates(lambda o: REXScheduler(o, STEPS, max_lr=LR, min_lr=0.01))
    assert ours(by_iter("REX", min_lr=0.01))[1:] == pytest.approx(theirs[1:])
    assert theirs[0] == 0.01  # before the first step of the scheduler
