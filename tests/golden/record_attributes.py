"""Record the attributes of mmcv's hooks, before and after a run."""

import json
import tempfile
import warnings
from typing import Any

import torch
from oracle import Hook, Idle, make_hook, make_loaders, make_runner, run

ITERATIONS = 20
CASES: dict[str, dict[str, Any]] = {
    "CheckpointHook": {"interval": 2, "max_keep_ckpts": 3},
    "CosineAnnealingLrUpdaterHook": {"min_lr": 0.0},
    "CosineAnnealingMomentumUpdaterHook": {"min_momentum": 0.5},
    "CosineRestartLrUpdaterHook": {
        "periods": [8, 12],
        "restart_weights": [1, 0.5],
        "min_lr": 0.0,
        "by_epoch": False,
    },
    "CyclicLrUpdaterHook": {"cyclic_times": 3, "warmup": "linear", "warmup_iters": 4},
    "CyclicMomentumUpdaterHook": {"cyclic_times": 2, "step_ratio_up": 0.3},
    "DistSamplerSeedHook": {},
    "EMAHook": {"interval": 2},
    "EmptyCacheHook": {},
    "ExpLrUpdaterHook": {"gamma": 0.9},
    "FixedLrUpdaterHook": {"warmup": "exp", "warmup_iters": 2, "warmup_by_epoch": True},
    "FlatCosineAnnealingLrUpdaterHook": {"start_percent": 0.5, "min_lr": 0.0},
    "GradientCumulativeOptimizerHook": {"cumulative_iters": 2},
    "InvLrUpdaterHook": {"gamma": 0.1},
    "IterTimerHook": {},
    "LinearAnnealingLrUpdaterHook": {"min_lr_ratio": 0.1},
    "LinearAnnealingMomentumUpdaterHook": {"min_momentum": 0.5},
    "OneCycleLrUpdaterHook": {"max_lr": 0.5, "total_steps": 25, "three_phase": True},
    "OneCycleMomentumUpdaterHook": {"three_phase": True, "pct_start": 0.4},
    "OptimizerHook": {"grad_clip": {"max_norm": 1.0}},
    "PolyLrUpdaterHook": {"power": 0.9},
    "ProfilerHook": {"by_epoch": False, "with_stack": True},
    "StepLrUpdaterHook": {"step": [1]},
    "StepMomentumUpdaterHook": {"step": [1]},
    "SyncBuffersHook": {},
    "TextLoggerHook": {"interval": 5},
}


def plain(value: Any) -> Any:
    """Return a JSON value as given, or a description of any other value."""
    if str(value).startswith(tempfile.gettempdir()):
        return "(path)"
    try:
        return json.loads(json.dumps(value))  # a copy: lists change during the run
    except TypeError:
        return f"({type(value).__name__})"


def known(hook: Any) -> dict[str, Any]:
    """Return a hook's own attributes."""
    found = {name: plain(value) for name, value in sorted(vars(hook).items())}
    return {**found, "t": "(time)"} if "t" in found else found


class Values(Hook):
    """Keeps the rate and the momentum of each iteration."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def after_train_iter(self, runner: Any) -> None:
        group = runner.optimizer.param_groups[0]
        self.seen.append([group["lr"], group["momentum"]])


def train(hook: Any) -> list[list[float]]:
    """Train two epochs with a hook; return the rates and momenta."""
    model = Idle()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tempfile.TemporaryDirectory() as work_dir, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = make_runner(
            "EpochBasedRunner", 2, model=model, optimizer=optimizer, work_dir=work_dir
        )
        values = Values()
        runner.register_hook(hook)
        runner.register_hook(values, priority="LOWEST")
        run(runner, make_loaders([ITERATIONS // 2]), [("train", 1)])
    return values.seen


def record() -> dict[str, Any]:
    """Record the attributes before and after a run, and the values of the subclasses."""
    cases: dict[str, Any] = {}
    for name, config in CASES.items():
        hook = make_hook({"type": name, **config})
        before = known(hook)
        train(hook)
        after = {k: v for k, v in known(hook).items() if k not in before or before[k] != v}
        cases[name] = {"config": config, "before": before, "after": after}

    return {"cases": cases}
