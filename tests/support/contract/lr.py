"""Arguments of the learning rate hooks, for the contract."""

from __future__ import annotations

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "CosineAnnealingCooldownLrUpdaterHook": (
        {"min_lr": 0.01, "cool_down_time": 1, "by_epoch": False},
        {},
    ),
    "MultiStageLrUpdaterHook": (
        {
            "milestone_lrs": [0.1, 0.2],
            "milestone_iters": [0, 1],
            "steps": [[1], 2],
            "gammas": [1, 2],
        },
        {"milestone_lrs": [0.1], "milestone_iters": [0], "steps": [0], "gammas": [1]},
    ),
    "YOLOXLrUpdaterHook": (
        {"num_last_epochs": 0, "min_lr": 0.01, "warmup": "exp", "warmup_iters": 2},
        {"num_last_epochs": -1, "min_lr": 0.01},
    ),
    "CyclicLrUpdaterHook": ({"target_ratio": [2, 0.1]}, {"cyclic_times": 0}),
    "OneCycleLrUpdaterHook": ({"max_lr": 0.1}, {"max_lr": 0.1, "pct_start": 2}),
    "CosineAnnealingLrUpdaterHook": ({"min_lr": 0.0}, {}),
    "CosineRestartLrUpdaterHook": (
        {"periods": [1, 3], "restart_weights": [1, 0.5], "min_lr": 0.0},
        {"periods": [1, 3], "min_lr": 0.0},
    ),
    "ExpLrUpdaterHook": ({"gamma": 0.9}, {"gamma": 0.9, "warmup": "quadratic"}),
    "FixedLrUpdaterHook": ({"warmup": "linear", "warmup_iters": 3}, {"warmup": "linear"}),
    "FlatCosineAnnealingLrUpdaterHook": ({"min_lr": 0.0}, {"start_percent": 2.0, "min_lr": 0.0}),
    "InvLrUpdaterHook": ({"gamma": 0.1}, {"gamma": 0.1, "warmup": "quadratic"}),
    "LinearAnnealingLrUpdaterHook": ({"min_lr_ratio": 0.1}, {"min_lr": 0.0, "min_lr_ratio": 0.1}),
    "PolyLrUpdaterHook": ({"power": 2.0}, {"warmup": "exp", "warmup_iters": 0}),
    "StepLrUpdaterHook": ({"step": 1}, {"step": 0}),
    "REXLrUpdaterHook": ({"min_lr": 0.0}, {}),
    "PhasesLrUpdaterHook": (
        {
            "phases": [{"policy": "fixed", "length": 0.5}, {"policy": "exp", "gamma": 0.5}],
            "by_epoch": False,
        },
        {"phases": []},
    ),
    "WSDLrUpdaterHook": ({"decay": 0.5}, {"decay": 0}),
    "FieldUpdaterHook": (
        {"name": "weight_decay", "policy": "LinearAnnealing", "end": 0.1, "include_zeros": True},
        {"name": "lr", "policy": "fixed"},
    ),
}
