"""Arguments of the momentum hooks, for the contract."""

from __future__ import annotations

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "CosineAnnealingMomentumUpdaterHook": ({"min_momentum": 0.5}, {}),
    "CyclicMomentumUpdaterHook": ({"cyclic_times": 2}, {"by_epoch": True}),
    "ExpMomentumUpdaterHook": ({"gamma": 0.9}, {"gamma": 0.9, "warmup": "quadratic"}),
    "FixedMomentumUpdaterHook": (
        {"warmup": "linear", "warmup_iters": 3, "warmup_ratio": 0.95},
        {"warmup": "linear"},
    ),
    "InvMomentumUpdaterHook": ({"gamma": 0.1}, {"gamma": 0.1, "warmup": "quadratic"}),
    "LinearAnnealingMomentumUpdaterHook": (
        {"min_momentum_ratio": 0.1},
        {"min_momentum": 0.0, "min_momentum_ratio": 0.1},
    ),
    "OneCycleMomentumUpdaterHook": ({}, {"base_momentum": "0.8"}),
    "PhasesMomentumUpdaterHook": (
        {
            "phases": [{"policy": "fixed", "length": 0.5}, {"policy": "exp", "gamma": 0.5}],
            "by_epoch": False,
        },
        {"phases": [{"policy": "fixed", "length": 0.5}]},
    ),
    "PolyMomentumUpdaterHook": ({"power": 2.0}, {"warmup": "exp", "warmup_iters": 0}),
    "StepMomentumUpdaterHook": ({"step": 1}, {"step": 0}),
}
