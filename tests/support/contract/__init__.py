"""Makes each hook as the contract does, and knows what the hook refuses."""

from __future__ import annotations

from typing import Any

from lightning_hooks import HOOKS

# how each is made, and an argument that it refuses
CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
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
    "PolyMomentumUpdaterHook": ({"power": 2.0}, {"warmup": "exp", "warmup_iters": 0}),
    "StepMomentumUpdaterHook": ({"step": 1}, {"step": 0}),
    "ClosureHook": ({"fn_name": "after_epoch", "fn": repr}, {"fn_name": "after_train", "fn": repr}),
    "DistSamplerSeedHook": ({}, None),
    "EmptyCacheHook": ({"after_iter": True}, {"after_iter": 1}),
    "PreciseBNHook": ({"num_samples": 8}, {"num_samples": 0}),
    "ProfilerHook": ({"by_epoch": False, "profile_iters": 2}, {"profile_iters": 0}),
    "StepTimeHook": ({"interval": 2, "log": True}, {"warmup_iters": -1}),
    "SyncBuffersHook": ({}, {"distributed": 1}),
    "CheckInvalidLossHook": ({"interval": 3}, {"interval": 0}),
    "BestCheckpointHook": ({"save_best": "val_loss"}, {"save_best": "speed"}),
    "CheckpointHook": ({"interval": 1, "max_keep_ckpts": 1}, {"interval": 0}),
    "ClearMLLoggerHook": ({"interval": 2}, {"interval": -1}),
    "CosineAnnealingLrUpdaterHook": ({"min_lr": 0.0}, {}),
    "CosineRestartLrUpdaterHook": (
        {"periods": [1, 3], "restart_weights": [1, 0.5], "min_lr": 0.0},
        {"periods": [1, 3], "min_lr": 0.0},
    ),
    "DvcliveLoggerHook": ({"interval": 2}, {"model_file": 3}),
    "EMAHook": ({"momentum": 0.1}, {"momentum": 2.0}),
    "ExpMomentumEMAHook": ({"momentum": 0.1, "total_iter": 8}, {"total_iter": 0}),
    "LinearMomentumEMAHook": ({"momentum": 0.3, "interval": 2, "warm_up": 9}, {"warm_up": -1}),
    "MomentumAnnealingEMAHook": ({"momentum": 0.1, "buffers": "copy"}, {"gamma": 0}),
    "StochasticWeightAverageHook": ({"interval": 2, "begin_iter": 3}, {"begin_iter": -1}),
    "ExpLrUpdaterHook": ({"gamma": 0.9}, {"gamma": 0.9, "warmup": "quadratic"}),
    "FixedLrUpdaterHook": ({"warmup": "linear", "warmup_iters": 3}, {"warmup": "linear"}),
    "FlatCosineAnnealingLrUpdaterHook": ({"min_lr": 0.0}, {"start_percent": 2.0, "min_lr": 0.0}),
    "GradientCumulativeOptimizerHook": ({"cumulative_iters": 2}, {"cumulative_iters": 0}),
    "Fp16OptimizerHook": ({"loss_scale": 512}, {"loss_scale": "static"}),
    "GradientCumulativeFp16OptimizerHook": (
        {"cumulative_iters": 2, "loss_scale": {"growth_interval": 2}},
        {"loss_scale": 0},
    ),
    "InvLrUpdaterHook": ({"gamma": 0.1}, {"gamma": 0.1, "warmup": "quadratic"}),
    "IterTimerHook": ({}, None),
    "LinearAnnealingLrUpdaterHook": ({"min_lr_ratio": 0.1}, {"min_lr": 0.0, "min_lr_ratio": 0.1}),
    "MlflowLoggerHook": ({"interval": 2, "log_model": False}, {"interval": -1}),
    "NeptuneLoggerHook": ({"interval": 2}, {"interval": -1}),
    "OptimizerHook": ({"grad_clip": {"max_norm": 1.0}}, {"grad_clip": 3}),
    "PolyLrUpdaterHook": ({"power": 2.0}, {"warmup": "exp", "warmup_iters": 0}),
    "StepLrUpdaterHook": ({"step": 1}, {"step": 0}),
    "TensorboardLoggerHook": ({"interval": 2}, {"log_dir": 3}),
    "TextLoggerHook": ({"interval": 2}, {"interval": -1}),
    "VisdomLoggerHook": ({"interval": 2}, {"timeout": -1.0}),
    "WandbLoggerHook": ({"interval": 2}, {"interval": -1}),
}


TRACKERS = {name for name in CASES if name.endswith("LoggerHook") and name != "TextLoggerHook"}


def build(name: str) -> Any:
    return HOOKS.build({"type": name, **CASES[name][0]})
