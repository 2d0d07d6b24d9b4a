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
    """Return the rate of each step of a scheduler that steps after the optimizer."""
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
    """Return phases with a separate warm-up phase before the policies."""
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


# -- MMEngine ----------------------------------------------------------------------------------

EPOCHS, BATCHES = 12, 5
ITERS = EPOCHS * BATCHES


def linear(end: int = 8, **arguments: Any) -> dict[str, Any]:
    return {"type": "LinearLR", "start_factor": 0.25, "begin": 0, "end": end, **arguments}


def cosine(begin: int = 0, end: int = EPOCHS, **arguments: Any) -> dict[str, Any]:
    return {"type": "CosineAnnealingLR", "begin": begin, "end": end, **arguments}


FROM_EPOCHS = {"by_epoch": True, "convert_to_iter_based": True}
ITER: dict[str, Any] = {"by_epoch": False}
MMENGINE: dict[str, list[dict[str, Any]]] = {
    "steps": [{"type": "MultiStepLR", "milestones": [8, 11], "gamma": 0.1}],
    "steps after a warm-up": [
        linear(by_epoch=False),
        {"type": "MultiStepLR", "begin": 0, "end": EPOCHS, "milestones": [8, 11]},
    ],
    "the warm-up second": [
        {"type": "StepLR", "step_size": 4, "gamma": 0.5},
        {"type": "ConstantLR", "factor": 0.25, "begin": 0, "end": 8, "by_epoch": False},
    ],
    "cosine": [cosine(T_max=EPOCHS, eta_min=0.01)],
    "cosine by iteration": [
        linear(10, **ITER),
        cosine(10, ITERS, T_max=ITERS - 10, eta_min=0.01, **ITER),
    ],
    "cosine, then what is left": [cosine(0, 8, eta_min=0.1)],
    "cosine, then another": [cosine(0, 6, eta_min=0.1), cosine(6, 12, eta_min=0.01)],
    "a longer cosine": [cosine(0, 8, T_max=12, eta_min_ratio=0.1)],
    "exp between": [
        {"type": "ExponentialLR", "gamma": 0.5, "begin": 3, "end": 6},
        {"type": "PolyLR", "power": 2, "eta_min": 0.01, "begin": 8, "end": 12},
    ],
    "line down": [{"type": "LinearLR", "start_factor": 1, "end_factor": 0.1, "end": 12}],
    "poly": [{"type": "PolyLR", "power": 0.9, "eta_min": 0.001, "end": ITERS, **ITER}],
    "restarts": [
        {
            "type": "CosineRestartLR",
            "periods": [4, 8],
            "restart_weights": [1, 0.5],
            "eta_min": 0,
        }
    ],
    "restarts to a minimum": [
        {"type": "CosineRestartLR", "periods": [4, 8], "restart_weights": [1, 1]}
        | {"eta_min_ratio": 0.1}
    ],
    "restarts from the first rate": [
        {"type": "LinearLR", "start_factor": 1, "end_factor": 0.5, "end": 4},
        {"type": "CosineRestartLR", "begin": 4, "periods": [4, 4], "restart_weights": [1, 0.5]}
        | {"eta_min": 0},
    ],
    "no ends": [
        linear(2, **FROM_EPOCHS),
        {"type": "CosineAnnealingLR", "begin": 2, "eta_min": 0.01},
    ],
    "a scheduler of one epoch": [
        {"type": "StepLR", "step_size": 1, "end": 1},
        {"type": "ExponentialLR", "gamma": 0.5, "begin": 1},
    ],
    "one cycle": [{"type": "OneCycleLR", "eta_max": 0.5, "total_steps": ITERS, **ITER}],
    "one cycle of epochs": [{"type": "OneCycleLR", "eta_max": 0.5, **FROM_EPOCHS}],
    "YOLO-like": [
        linear(2, **FROM_EPOCHS),
        cosine(2, 10, T_max=8, eta_min=0.05, **FROM_EPOCHS),
        {"type": "ConstantLR", "factor": 1, "begin": 10, "end": 12, "by_epoch": True} | FROM_EPOCHS,
    ],
    "steps from epochs": [{"type": "MultiStepLR", "milestones": [8, 11], **FROM_EPOCHS}],
    "momentum": [
        {"type": "CosineAnnealingMomentum", "T_max": EPOCHS, "eta_min": 0.5},
    ],
    "weight decay": [
        {"type": "LinearParamScheduler", "param_name": "weight_decay", "start_factor": 1}
        | {"end_factor": 0.25, "end": ITERS, "by_epoch": False}
    ],
}


def mmengines(schedulers: list[dict[str, Any]], key: str) -> list[float]:
    """Return MMEngine's values in each iteration; the schedulers step by iteration or epoch."""
    kinds = importlib.import_module("mmengine.optim.scheduler")
    sgd = optimizer()
    sgd.param_groups[0]["weight_decay"] = 0.05
    made, found = [], []
    for config in schedulers:
        end = EPOCHS if config.get("by_epoch", True) else ITERS  # as Runner.build_param_scheduler
        given = {"end": end, **config, "optimizer": sgd}
        kind = getattr(kinds, given.pop("type"))
        converts = given.pop("convert_to_iter_based", False)
        if converts:
            made.append(kind.build_iter_from_epoch(**given, epoch_length=BATCHES))
        else:
            made.append(kind(**given))
    for iteration in range(ITERS):
        found.append(sgd.param_groups[0][key])
        sgd.step()
        for one in made:
            if not one.by_epoch or (iteration + 1) % BATCHES == 0:
                one.step()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MMENGINE)
def test_mmengine(name: str) -> None:
    schedulers = MMENGINE[name]
    length = {"max_iters": ITERS, "max_epochs": EPOCHS, "epoch_length": BATCHES}
    [config] = h.dialects.mmengine.hooks_of_param_scheduler(schedulers, **length)
    run = {"max_epochs": EPOCHS, "iters_per_epoch": BATCHES, "base_lr": LR}
    found = sample(h.HOOKS.build(config), **run, fields={"weight_decay": 0.05})
    key = {"momentum": "momentum", "weight decay": "weight_decay"}.get(name, "lr")
    assert found == pytest.approx(mmengines(schedulers, key), rel=1e-9, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_a_cycle_of_mmengine_in_a_config() -> None:
    """A config has the epochs of the run, not its batches."""
    schedulers = [{"type": "OneCycleLR", "eta_max": 0.5, "total_steps": EPOCHS, **FROM_EPOCHS}]
    [config] = h.dialects.mmengine.hooks_of_param_scheduler(schedulers, max_epochs=EPOCHS)
    found = sample(h.HOOKS.build(config), max_epochs=EPOCHS, iters_per_epoch=BATCHES, base_lr=LR)
    assert found == pytest.approx(mmengines(schedulers, "lr"))


@pytest.mark.filterwarnings("ignore")
def test_mmengine_without_the_batches_of_an_epoch() -> None:
    """After the cosine the rate is its end, where MMEngine keeps the last step's."""
    schedulers = MMENGINE["YOLO-like"]
    [config] = h.dialects.mmengine.hooks_of_param_scheduler(schedulers, max_epochs=EPOCHS)
    run = {"max_epochs": EPOCHS, "iters_per_epoch": BATCHES, "base_lr": LR}
    found, theirs = sample(h.HOOKS.build(config), **run), mmengines(schedulers, "lr")
    assert found[10:50] == pytest.approx(theirs[10:50])
    assert found[50:] == [pytest.approx(0.05)] * 10
    assert theirs[50:] == [pytest.approx(0.05, abs=1e-3)] * 10
    # the warm-up ends a step later
    assert found[:10] == pytest.approx(theirs[:10], abs=LR * 0.75 / 9)
