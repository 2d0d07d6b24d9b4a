"""Arguments of checkpoint hooks, watchers and small hooks, for the contract."""

from __future__ import annotations

import importlib.util

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "ClosureHook": ({"fn_name": "after_epoch", "fn": repr}, {"fn_name": "after_train", "fn": repr}),
    "DistSamplerSeedHook": ({}, None),
    "EmptyCacheHook": ({"after_iter": True}, {"after_iter": 1}),
    "FreezeHook": ({"names": "net.0"}, {"names": []}),
    "PreciseBNHook": ({"num_samples": 8}, {"num_samples": 0}),
    "ProfilerHook": ({"by_epoch": False, "profile_iters": 2}, {"profile_iters": 0}),
    "ScheduleFreeHook": ({}, None),
    "StepTimeHook": ({"interval": 2, "log": True}, {"warmup_iters": -1}),
    "SystemMetricsHook": ({"interval": 0.01}, {"interval": 0}),
    "ThroughputHook": ({"warmup_iters": 0}, {"flops": "all"}),
    "TimeLimitHook": ({"hours": 5}, {"hours": -1}),
    "WatchHook": ({"interval": 2}, {"log": "weights"}),
    "SyncBuffersHook": ({}, {"distributed": 1}),
    "CheckInvalidLossHook": ({"interval": 3}, {"interval": 0}),
    "BestCheckpointHook": ({"save_best": "val_loss"}, {"save_best": "speed"}),
    "CheckpointHook": ({"interval": 1, "max_keep_ckpts": 1}, {"interval": 0}),
    "IterTimerHook": ({}, None),
}

if importlib.util.find_spec("huggingface_hub"):  # an optional extra
    CASES["HubCheckpointHook"] = ({"repo_id": "me/digits"}, {"upload": "bst"})
