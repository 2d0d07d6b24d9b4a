"""The modules of the public names, which are imported on first use (PEP 562).

``import lightning_hooks`` imports nothing else. ``HOOKS`` finds classes by the same table. Type
checkers and editors read the imports in ``__init__.py`` instead; a test compares the two.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from lightning_hooks.utils.suggestions import suggest

__all__ = ["HOMES", "PUBLIC", "import_name", "list_names", "unknown_name_error"]

PACKAGE = __name__.rpartition(".")[0]

_NAMES = {
    "adapter": "HookAdapter",
    "config.full_config": "hooks_from_config",
    "config.training_hooks": "register_training_hooks",
    "engine.hook": "Hook",
    "engine.points": "Point",
    "engine.priority": "Priority get_priority",
    "engine.registry": "HOOKS Registry build_from_cfg",
    "engine.runner.log_buffer": "LogBuffer",
    "engine.runner.runner": "Runner",
    "hooks.averaging.ema": "EMAHook",
    "hooks.averaging.mmdet": "BaseEMAHook ExpMomentumEMAHook LinearMomentumEMAHook",
    "hooks.averaging.mmengine": "MomentumAnnealingEMAHook StochasticWeightAverageHook",
    "hooks.batch_norm.population_stats": "update_bn_stats",
    "hooks.batch_norm.precise_bn": "PreciseBNHook",
    "hooks.checkpoint.checkpoint": "CheckpointHook",
    "hooks.closure": "ClosureHook",
    "hooks.empty_cache": "EmptyCacheHook",
    "hooks.evaluation.best_checkpoint": "BestCheckpointHook",
    "hooks.evaluation.dist_eval": "DistEvalHook",
    "hooks.evaluation.eval": "EvalHook",
    "hooks.invalid_loss.batch_dump": "load_batch",
    "hooks.invalid_loss.check": "CheckInvalidLossHook InvalidLossError",
    "hooks.optimizer.accumulation": "GradientCumulativeOptimizerHook",
    "hooks.optimizer.fp16": "Fp16OptimizerHook GradientCumulativeFp16OptimizerHook",
    "hooks.optimizer.optimizer": "OptimizerHook",
    "hooks.profiling.iter_timer": "IterTimerHook",
    "hooks.profiling.profiler": "ProfilerHook",
    "hooks.profiling.step_time": "StepTimeHook",
    "hooks.sampler_seed": "DistSamplerSeedHook",
    "hooks.sync_buffers": "SyncBuffersHook",
    "hooks.updaters.lr": "LrUpdaterHook",
    "hooks.updaters.lr_anneal": (
        "CosineAnnealingCooldownLrUpdaterHook CosineAnnealingLrUpdaterHook "
        "CosineRestartLrUpdaterHook FlatCosineAnnealingLrUpdaterHook "
        "LinearAnnealingLrUpdaterHook YOLOXLrUpdaterHook"
    ),
    "hooks.updaters.lr_cyclic": "CyclicLrUpdaterHook OneCycleLrUpdaterHook",
    "hooks.updaters.lr_decay": (
        "ExpLrUpdaterHook FixedLrUpdaterHook InvLrUpdaterHook MultiStageLrUpdaterHook "
        "PolyLrUpdaterHook StepLrUpdaterHook"
    ),
    "hooks.updaters.momentum": "MomentumUpdaterHook",
    "hooks.updaters.momentum_policies": (
        "CosineAnnealingMomentumUpdaterHook CyclicMomentumUpdaterHook ExpMomentumUpdaterHook "
        "FixedMomentumUpdaterHook InvMomentumUpdaterHook LinearAnnealingMomentumUpdaterHook "
        "OneCycleMomentumUpdaterHook PolyMomentumUpdaterHook StepMomentumUpdaterHook"
    ),
    "loggers.base": "LoggerHook",
    "loggers.discontinued": "PaviLoggerHook SegmindLoggerHook",
    "loggers.lightning_logger": "LightningLoggerHook",
    "loggers.text": "TextLoggerHook",
    "loggers.trackers.clearml": "ClearMLLoggerHook",
    "loggers.trackers.dvclive": "DvcliveLoggerHook",
    "loggers.trackers.mlflow": "MlflowLoggerHook",
    "loggers.trackers.neptune": "NeptuneLoggerHook",
    "loggers.trackers.tensorboard": "TensorboardLoggerHook",
    "loggers.trackers.visdom": "VisdomLoggerHook",
    "loggers.trackers.wandb": "WandbLoggerHook",
    "storage.earlier_files": "newest_valid",
    "train_step": "TrainStepModule",
}


HOMES = {name: f"{PACKAGE}.{module}" for module, names in _NAMES.items() for name in names.split()}
"""The module of each public class and function."""

PUBLIC = [*HOMES, "schedules", "standin"]
"""All public names; the last two are packages themselves."""


def import_name(name: str) -> Any:
    """Return a public name of the package, or one of its modules.

    Raises:
        AttributeError: for an unknown name, with the closest one.
        ImportError: the same, in ``from lightning_hooks import ...``.
    """
    if name in HOMES:
        found = getattr(importlib.import_module(HOMES[name]), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"{PACKAGE}.{name}"):
        found = importlib.import_module(f"{PACKAGE}.{name}")
    else:
        raise unknown_name_error(PACKAGE, name, suggest(name, PUBLIC))
    vars(sys.modules[PACKAGE])[name] = found  # the next time it is found without this function
    return found


def list_names() -> list[str]:
    """Return the names for ``dir(lightning_hooks)``."""
    return sorted({*vars(sys.modules[PACKAGE]), *PUBLIC})


def unknown_name_error(module: str, name: str, advice: str) -> Exception:
    """Return the error for a name that a module does not have, from its ``__getattr__``."""
    # in a from-import, importlib calls hasattr first and drops the message of an AttributeError
    by_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    kind = ImportError if by_import else AttributeError
    return kind("; ".join(filter(None, [f"{module} has no {name!r}", advice])))
