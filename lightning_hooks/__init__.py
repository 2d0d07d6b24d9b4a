"""Your mmcv hooks, as Lightning callbacks; your old hook files, unchanged."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for those who read the code; it is names.py that finds them when it runs
    from lightning_hooks import schedules as schedules
    from lightning_hooks import standin as standin
    from lightning_hooks.adapter import HookAdapter as HookAdapter
    from lightning_hooks.config import register_training_hooks as register_training_hooks
    from lightning_hooks.hook import Hook as Hook
    from lightning_hooks.hooks.batch_dump import load_batch as load_batch
    from lightning_hooks.hooks.best_checkpoint_hook import BestCheckpointHook as BestCheckpointHook
    from lightning_hooks.hooks.checkpoint import CheckpointHook as CheckpointHook
    from lightning_hooks.hooks.closure import ClosureHook as ClosureHook
    from lightning_hooks.hooks.cumulative import (
        GradientCumulativeOptimizerHook as GradientCumulativeOptimizerHook,
    )
    from lightning_hooks.hooks.cumulative_fp16 import (
        GradientCumulativeFp16OptimizerHook as GradientCumulativeFp16OptimizerHook,
    )
    from lightning_hooks.hooks.dist_evaluation import DistEvalHook as DistEvalHook
    from lightning_hooks.hooks.ema import EMAHook as EMAHook
    from lightning_hooks.hooks.empty_cache import EmptyCacheHook as EmptyCacheHook
    from lightning_hooks.hooks.evaluation import EvalHook as EvalHook
    from lightning_hooks.hooks.fp16 import Fp16OptimizerHook as Fp16OptimizerHook
    from lightning_hooks.hooks.gone import PaviLoggerHook as PaviLoggerHook
    from lightning_hooks.hooks.gone import SegmindLoggerHook as SegmindLoggerHook
    from lightning_hooks.hooks.invalid_loss import CheckInvalidLossHook as CheckInvalidLossHook
    from lightning_hooks.hooks.invalid_loss import InvalidLossError as InvalidLossError
    from lightning_hooks.hooks.iter_timer import IterTimerHook as IterTimerHook
    from lightning_hooks.hooks.logger import LoggerHook as LoggerHook
    from lightning_hooks.hooks.lr import LrUpdaterHook as LrUpdaterHook
    from lightning_hooks.hooks.lr_annealing import (
        CosineAnnealingLrUpdaterHook as CosineAnnealingLrUpdaterHook,
    )
    from lightning_hooks.hooks.lr_annealing import (
        CosineRestartLrUpdaterHook as CosineRestartLrUpdaterHook,
    )
    from lightning_hooks.hooks.lr_annealing import (
        FlatCosineAnnealingLrUpdaterHook as FlatCosineAnnealingLrUpdaterHook,
    )
    from lightning_hooks.hooks.lr_annealing import (
        LinearAnnealingLrUpdaterHook as LinearAnnealingLrUpdaterHook,
    )
    from lightning_hooks.hooks.lr_cooldown import (
        CosineAnnealingCooldownLrUpdaterHook as CosineAnnealingCooldownLrUpdaterHook,
    )
    from lightning_hooks.hooks.lr_phases import CyclicLrUpdaterHook as CyclicLrUpdaterHook
    from lightning_hooks.hooks.lr_phases import OneCycleLrUpdaterHook as OneCycleLrUpdaterHook
    from lightning_hooks.hooks.lr_policies import ExpLrUpdaterHook as ExpLrUpdaterHook
    from lightning_hooks.hooks.lr_policies import FixedLrUpdaterHook as FixedLrUpdaterHook
    from lightning_hooks.hooks.lr_policies import InvLrUpdaterHook as InvLrUpdaterHook
    from lightning_hooks.hooks.lr_policies import PolyLrUpdaterHook as PolyLrUpdaterHook
    from lightning_hooks.hooks.lr_policies import StepLrUpdaterHook as StepLrUpdaterHook
    from lightning_hooks.hooks.lr_stages import MultiStageLrUpdaterHook as MultiStageLrUpdaterHook
    from lightning_hooks.hooks.lr_yolox import YOLOXLrUpdaterHook as YOLOXLrUpdaterHook
    from lightning_hooks.hooks.mmdet_ema import BaseEMAHook as BaseEMAHook
    from lightning_hooks.hooks.mmdet_ema import ExpMomentumEMAHook as ExpMomentumEMAHook
    from lightning_hooks.hooks.mmdet_ema import LinearMomentumEMAHook as LinearMomentumEMAHook
    from lightning_hooks.hooks.mmengine_averages import (
        MomentumAnnealingEMAHook as MomentumAnnealingEMAHook,
    )
    from lightning_hooks.hooks.mmengine_averages import (
        StochasticWeightAverageHook as StochasticWeightAverageHook,
    )
    from lightning_hooks.hooks.momentum import MomentumUpdaterHook as MomentumUpdaterHook
    from lightning_hooks.hooks.momentum_phases import (
        CyclicMomentumUpdaterHook as CyclicMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_phases import (
        OneCycleMomentumUpdaterHook as OneCycleMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        CosineAnnealingMomentumUpdaterHook as CosineAnnealingMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        ExpMomentumUpdaterHook as ExpMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        FixedMomentumUpdaterHook as FixedMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        InvMomentumUpdaterHook as InvMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        LinearAnnealingMomentumUpdaterHook as LinearAnnealingMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        PolyMomentumUpdaterHook as PolyMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.momentum_policies import (
        StepMomentumUpdaterHook as StepMomentumUpdaterHook,
    )
    from lightning_hooks.hooks.optimizer import OptimizerHook as OptimizerHook
    from lightning_hooks.hooks.precise_bn import PreciseBNHook as PreciseBNHook
    from lightning_hooks.hooks.profiler import ProfilerHook as ProfilerHook
    from lightning_hooks.hooks.sampler_seed import DistSamplerSeedHook as DistSamplerSeedHook
    from lightning_hooks.hooks.step_time import StepTimeHook as StepTimeHook
    from lightning_hooks.hooks.sync_buffers import SyncBuffersHook as SyncBuffersHook
    from lightning_hooks.log_buffer import LogBuffer as LogBuffer
    from lightning_hooks.manifest import newest_valid as newest_valid
    from lightning_hooks.points import Point as Point
    from lightning_hooks.population_stats import update_bn_stats as update_bn_stats
    from lightning_hooks.priority import Priority as Priority
    from lightning_hooks.priority import get_priority as get_priority
    from lightning_hooks.registry import HOOKS as HOOKS
    from lightning_hooks.registry import Registry as Registry
    from lightning_hooks.registry import build_from_cfg as build_from_cfg
    from lightning_hooks.runner import Runner as Runner
    from lightning_hooks.train_step import TrainStepModule as TrainStepModule
    from lightning_hooks.whole_config import hooks_from_config as hooks_from_config
    from lightning_hooks.writers.clearml import ClearMLLoggerHook as ClearMLLoggerHook
    from lightning_hooks.writers.dvclive import DvcliveLoggerHook as DvcliveLoggerHook
    from lightning_hooks.writers.mlflow import MlflowLoggerHook as MlflowLoggerHook
    from lightning_hooks.writers.neptune import NeptuneLoggerHook as NeptuneLoggerHook
    from lightning_hooks.writers.tensorboard import TensorboardLoggerHook as TensorboardLoggerHook
    from lightning_hooks.writers.text import TextLoggerHook as TextLoggerHook
    from lightning_hooks.writers.visdom import VisdomLoggerHook as VisdomLoggerHook
    from lightning_hooks.writers.wandb import WandbLoggerHook as WandbLoggerHook
else:
    from lightning_hooks import names

    __all__, __getattr__, __dir__ = names.PUBLIC, names.find, names.offered

__version__ = "0.1.0"
