# The public names, each with its module; at run time _exports reads them from this file.

from lightning_hooks import schedules as schedules, standin as standin
from lightning_hooks.adapter import HookAdapter as HookAdapter
from lightning_hooks.config.full_config import hooks_from_config as hooks_from_config
from lightning_hooks.config.training_hooks import register_training_hooks as register_training_hooks
from lightning_hooks.engine.hook import Hook as Hook
from lightning_hooks.engine.lightning_api.one_package import (
    use_with_pytorch_lightning as use_with_pytorch_lightning,
)
from lightning_hooks.engine.points import Point as Point
from lightning_hooks.engine.priority import Priority as Priority, get_priority as get_priority
from lightning_hooks.engine.registry import (
    HOOKS as HOOKS,
    Registry as Registry,
    build_from_cfg as build_from_cfg,
)
from lightning_hooks.engine.runner.log_buffer import LogBuffer as LogBuffer
from lightning_hooks.engine.runner.runner import Runner as Runner
from lightning_hooks.hooks.averaging.ema import (
    BaseEMAHook as BaseEMAHook,
    EMAHook as EMAHook,
    ExpMomentumEMAHook as ExpMomentumEMAHook,
    LinearMomentumEMAHook as LinearMomentumEMAHook,
    MomentumAnnealingEMAHook as MomentumAnnealingEMAHook,
    StochasticWeightAverageHook as StochasticWeightAverageHook,
)
from lightning_hooks.hooks.batch_norm.population_stats import update_bn_stats as update_bn_stats
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook as PreciseBNHook
from lightning_hooks.hooks.saving.last import CheckpointHook as CheckpointHook
from lightning_hooks.hooks.closure import ClosureHook as ClosureHook
from lightning_hooks.hooks.empty_cache import EmptyCacheHook as EmptyCacheHook
from lightning_hooks.hooks.freeze import FreezeHook as FreezeHook
from lightning_hooks.hooks.saving.best import (
    BestCheckpointHook as BestCheckpointHook,
)
from lightning_hooks.hooks.saving.evaluation import DistEvalHook as DistEvalHook
from lightning_hooks.hooks.saving.evaluation import EvalHook as EvalHook
from lightning_hooks.hooks.hub import HubCheckpointHook as HubCheckpointHook
from lightning_hooks.hooks.invalid_loss.check import (
    CheckInvalidLossHook as CheckInvalidLossHook,
    InvalidLossError as InvalidLossError,
)
from lightning_hooks.hooks.invalid_loss.loss_history import load_batch as load_batch
from lightning_hooks.hooks.optimizer.accumulation import (
    GradientCumulativeOptimizerHook as GradientCumulativeOptimizerHook,
)
from lightning_hooks.hooks.optimizer.fp16 import (
    Fp16OptimizerHook as Fp16OptimizerHook,
    GradientCumulativeFp16OptimizerHook as GradientCumulativeFp16OptimizerHook,
)
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook as OptimizerHook
from lightning_hooks.hooks.profiling.iter_timer import IterTimerHook as IterTimerHook
from lightning_hooks.hooks.profiling.profiler import ProfilerHook as ProfilerHook
from lightning_hooks.hooks.profiling.step_time import StepTimeHook as StepTimeHook
from lightning_hooks.hooks.profiling.system_metrics import SystemMetricsHook as SystemMetricsHook
from lightning_hooks.hooks.profiling.throughput import ThroughputHook as ThroughputHook
from lightning_hooks.hooks.sampler_seed import DistSamplerSeedHook as DistSamplerSeedHook
from lightning_hooks.hooks.schedule_free import ScheduleFreeHook as ScheduleFreeHook
from lightning_hooks.hooks.sync_buffers import SyncBuffersHook as SyncBuffersHook
from lightning_hooks.hooks.time_limit import (
    TimeLimitHook as TimeLimitHook,
    TimeLimitReached as TimeLimitReached,
)
from lightning_hooks.hooks.updaters.anneal import (
    CosineAnnealingCooldownLrUpdaterHook as CosineAnnealingCooldownLrUpdaterHook,
    CosineAnnealingLrUpdaterHook as CosineAnnealingLrUpdaterHook,
    CosineAnnealingMomentumUpdaterHook as CosineAnnealingMomentumUpdaterHook,
    CosineRestartLrUpdaterHook as CosineRestartLrUpdaterHook,
    FlatCosineAnnealingLrUpdaterHook as FlatCosineAnnealingLrUpdaterHook,
    LinearAnnealingLrUpdaterHook as LinearAnnealingLrUpdaterHook,
    LinearAnnealingMomentumUpdaterHook as LinearAnnealingMomentumUpdaterHook,
    REXLrUpdaterHook as REXLrUpdaterHook,
    YOLOXLrUpdaterHook as YOLOXLrUpdaterHook,
)
from lightning_hooks.hooks.updaters.cyclic import (
    CyclicLrUpdaterHook as CyclicLrUpdaterHook,
    CyclicMomentumUpdaterHook as CyclicMomentumUpdaterHook,
    OneCycleLrUpdaterHook as OneCycleLrUpdaterHook,
    OneCycleMomentumUpdaterHook as OneCycleMomentumUpdaterHook,
)
from lightning_hooks.hooks.updaters.decay import (
    ExpLrUpdaterHook as ExpLrUpdaterHook,
    ExpMomentumUpdaterHook as ExpMomentumUpdaterHook,
    FixedLrUpdaterHook as FixedLrUpdaterHook,
    FixedMomentumUpdaterHook as FixedMomentumUpdaterHook,
    InvLrUpdaterHook as InvLrUpdaterHook,
    InvMomentumUpdaterHook as InvMomentumUpdaterHook,
    MultiStageLrUpdaterHook as MultiStageLrUpdaterHook,
    PolyLrUpdaterHook as PolyLrUpdaterHook,
    PolyMomentumUpdaterHook as PolyMomentumUpdaterHook,
    StepLrUpdaterHook as StepLrUpdaterHook,
    StepMomentumUpdaterHook as StepMomentumUpdaterHook,
)
from lightning_hooks.hooks.updaters.field import FieldUpdaterHook as FieldUpdaterHook
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook as LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook as MomentumUpdaterHook
from lightning_hooks.hooks.updaters.phases import (
    PhasesLrUpdaterHook as PhasesLrUpdaterHook,
    PhasesMomentumUpdaterHook as PhasesMomentumUpdaterHook,
)
from lightning_hooks.hooks.updaters.wsd import WSDLrUpdaterHook as WSDLrUpdaterHook
from lightning_hooks.hooks.watch import WatchHook as WatchHook
from lightning_hooks.loggers.base import LoggerHook as LoggerHook
from lightning_hooks.loggers.discontinued import (
    PaviLoggerHook as PaviLoggerHook,
    SegmindLoggerHook as SegmindLoggerHook,
)
from lightning_hooks.loggers.trackers.lightning import LightningLoggerHook as LightningLoggerHook
from lightning_hooks.loggers.text import TextLoggerHook as TextLoggerHook
from lightning_hooks.loggers.trackers.clearml import ClearMLLoggerHook as ClearMLLoggerHook
from lightning_hooks.loggers.trackers.dvclive import DvcliveLoggerHook as DvcliveLoggerHook
from lightning_hooks.loggers.trackers.mlflow import MlflowLoggerHook as MlflowLoggerHook
from lightning_hooks.loggers.trackers.neptune import NeptuneLoggerHook as NeptuneLoggerHook
from lightning_hooks.loggers.as_lightning_logger import hooks_logger as hooks_logger
from lightning_hooks.loggers.samples import (
    log_audio as log_audio,
    log_figure as log_figure,
    log_image as log_image,
    log_table as log_table,
    log_text as log_text,
    log_video as log_video,
)
from lightning_hooks.loggers.trackers.tensorboard import (
    TensorboardLoggerHook as TensorboardLoggerHook,
)
from lightning_hooks.loggers.trackers.trackio import TrackioLoggerHook as TrackioLoggerHook
from lightning_hooks.loggers.trackers.visdom import VisdomLoggerHook as VisdomLoggerHook
from lightning_hooks.loggers.trackers.wandb import WandbLoggerHook as WandbLoggerHook
from lightning_hooks.storage.find_checkpoints import (
    best_checkpoint as best_checkpoint,
    last_checkpoint as last_checkpoint,
    newest_valid as newest_valid,
)
from lightning_hooks.optim.groups import param_groups as param_groups
from lightning_hooks.storage.average import average_checkpoints as average_checkpoints
from lightning_hooks.train_step import TrainStepModule as TrainStepModule

__version__: str
