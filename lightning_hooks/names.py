"""Where the public names are: a module is imported when a name of it is first asked for.

``import lightning_hooks`` imports nothing else: its names come by PEP 562, and ``HOOKS`` finds
classes by the same table.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from lightning_hooks.suggest import suggest

__all__ = ["HOMES", "PUBLIC", "absent", "find", "offered"]

PACKAGE = __name__.rpartition(".")[0]

_NAMES = {
    "adapter": "HookAdapter",
    "config": "register_training_hooks",
    "hook": "Hook",
    "hooks.batch_dump": "load_batch",
    "hooks.best_checkpoint_hook": "BestCheckpointHook",
    "hooks.checkpoint": "CheckpointHook",
    "hooks.closure": "ClosureHook",
    "hooks.cumulative": "GradientCumulativeOptimizerHook",
    "hooks.cumulative_fp16": "GradientCumulativeFp16OptimizerHook",
    "hooks.dist_evaluation": "DistEvalHook",
    "hooks.ema": "EMAHook",
    "hooks.empty_cache": "EmptyCacheHook",
    "hooks.evaluation": "EvalHook",
    "hooks.fp16": "Fp16OptimizerHook",
    "hooks.gone": "PaviLoggerHook SegmindLoggerHook",
    "hooks.invalid_loss": "CheckInvalidLossHook InvalidLossError",
    "hooks.iter_timer": "IterTimerHook",
    "hooks.logger": "LoggerHook",
    "hooks.lr": "LrUpdaterHook",
    "hooks.lr_annealing": (
        "CosineAnnealingLrUpdaterHook CosineRestartLrUpdaterHook "
        "FlatCosineAnnealingLrUpdaterHook LinearAnnealingLrUpdaterHook"
    ),
    "hooks.lr_cooldown": "CosineAnnealingCooldownLrUpdaterHook",
    "hooks.lr_phases": "CyclicLrUpdaterHook OneCycleLrUpdaterHook",
    "hooks.lr_policies": (
        "ExpLrUpdaterHook FixedLrUpdaterHook InvLrUpdaterHook PolyLrUpdaterHook StepLrUpdaterHook"
    ),
    "hooks.lr_stages": "MultiStageLrUpdaterHook",
    "hooks.lr_yolox": "YOLOXLrUpdaterHook",
    "hooks.mmdet_ema": "BaseEMAHook ExpMomentumEMAHook LinearMomentumEMAHook",
    "hooks.mmengine_averages": "MomentumAnnealingEMAHook StochasticWeightAverageHook",
    "hooks.momentum": "MomentumUpdaterHook",
    "hooks.momentum_phases": "CyclicMomentumUpdaterHook OneCycleMomentumUpdaterHook",
    "hooks.momentum_policies": (
        "CosineAnnealingMomentumUpdaterHook ExpMomentumUpdaterHook FixedMomentumUpdaterHook "
        "InvMomentumUpdaterHook LinearAnnealingMomentumUpdaterHook PolyMomentumUpdaterHook "
        "StepMomentumUpdaterHook"
    ),
    "hooks.optimizer": "OptimizerHook",
    "hooks.precise_bn": "PreciseBNHook",
    "hooks.profiler": "ProfilerHook",
    "hooks.sampler_seed": "DistSamplerSeedHook",
    "hooks.step_time": "StepTimeHook",
    "hooks.sync_buffers": "SyncBuffersHook",
    "log_buffer": "LogBuffer",
    "manifest": "newest_valid",
    "points": "Point",
    "population_stats": "update_bn_stats",
    "priority": "Priority get_priority",
    "registry": "HOOKS Registry build_from_cfg",
    "runner": "Runner",
    "train_step": "TrainStepModule",
    "whole_config": "hooks_from_config",
    "writers.clearml": "ClearMLLoggerHook",
    "writers.dvclive": "DvcliveLoggerHook",
    "writers.mlflow": "MlflowLoggerHook",
    "writers.neptune": "NeptuneLoggerHook",
    "writers.tensorboard": "TensorboardLoggerHook",
    "writers.text": "TextLoggerHook",
    "writers.visdom": "VisdomLoggerHook",
    "writers.wandb": "WandbLoggerHook",
}

HOMES = {name: f"{PACKAGE}.{module}" for module, names in _NAMES.items() for name in names.split()}
"""The module of each public class and function."""

PUBLIC = [*HOMES, "schedules", "standin"]
"""All public names; the last two are packages themselves."""


def find(name: str) -> Any:
    """Return what the package has under a name, or a module of the package.

    Raises:
        AttributeError: if there is none, with what was meant.
        ImportError: the same, where ``from lightning_hooks import ...`` has asked.
    """
    if name in HOMES:
        found = getattr(importlib.import_module(HOMES[name]), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"{PACKAGE}.{name}"):
        found = importlib.import_module(f"{PACKAGE}.{name}")
    else:
        raise absent(PACKAGE, name, suggest(name, PUBLIC))
    vars(sys.modules[PACKAGE])[name] = found  # it is not asked for again
    return found


def offered() -> list[str]:
    """Return the names that the package shows."""
    return sorted({*vars(sys.modules[PACKAGE]), *PUBLIC})


def absent(module: str, name: str, advice: str) -> Exception:
    """Return the error of a module's ``__getattr__`` for a name that it does not have."""
    # importlib asks by hasattr first, and hides what an AttributeError says
    by_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    kind = ImportError if by_import else AttributeError
    return kind("; ".join(filter(None, [f"{module} has no {name!r}", advice])))
