"""Hooks, storage and writers of detectron2, importable without detectron2.

The loop, with the points of a hook, called without arguments; ``self.trainer`` is set::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        losses.backward()  # in trainer.run_step()
        hook.after_backward()
        optimizer.step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when the loop has raised

A hook's ``state_dict()`` is saved in every Lightning checkpoint.
"""

from __future__ import annotations

from lightning_hooks.dialects.detectron2 import hooks as hooks
from lightning_hooks.dialects.detectron2.events import CommonMetricPrinter as CommonMetricPrinter
from lightning_hooks.dialects.detectron2.events import EventStorage as EventStorage
from lightning_hooks.dialects.detectron2.events import get_event_storage as get_event_storage
from lightning_hooks.dialects.detectron2.events import has_event_storage as has_event_storage
from lightning_hooks.dialects.detectron2.hooks import AutogradProfiler as AutogradProfiler
from lightning_hooks.dialects.detectron2.hooks import BestCheckpointer as BestCheckpointer
from lightning_hooks.dialects.detectron2.hooks import CallbackHook as CallbackHook
from lightning_hooks.dialects.detectron2.hooks import EvalHook as EvalHook
from lightning_hooks.dialects.detectron2.hooks import HookBase as HookBase
from lightning_hooks.dialects.detectron2.hooks import IterationTimer as IterationTimer
from lightning_hooks.dialects.detectron2.hooks import LRScheduler as LRScheduler
from lightning_hooks.dialects.detectron2.hooks import PeriodicCheckpointer as PeriodicCheckpointer
from lightning_hooks.dialects.detectron2.hooks import PeriodicWriter as PeriodicWriter
from lightning_hooks.dialects.detectron2.hooks import PreciseBN as PreciseBN
from lightning_hooks.dialects.detectron2.hooks import TorchMemoryStats as TorchMemoryStats
from lightning_hooks.dialects.detectron2.hooks import TorchProfiler as TorchProfiler
from lightning_hooks.dialects.detectron2.trainer_facade import TrainerFacade
from lightning_hooks.dialects.steps.checkpoints import Checkpointer as Checkpointer
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.trainer_facade import step_dialect
from lightning_hooks.dialects.steps.writers import EventWriter as EventWriter
from lightning_hooks.dialects.steps.writers import JSONWriter as JSONWriter
from lightning_hooks.dialects.steps.writers import TensorboardXWriter as TensorboardXWriter
from lightning_hooks.dialects.steps.writers import VisdomWriter as VisdomWriter

__all__ = [
    "DIALECT",
    "AutogradProfiler",
    "BestCheckpointer",
    "CallbackHook",
    "Checkpointer",
    "CommonMetricPrinter",
    "DetectionCheckpointer",
    "EvalHook",
    "EventStorage",
    "EventWriter",
    "HistoryBuffer",
    "HookBase",
    "IterationTimer",
    "JSONWriter",
    "LRScheduler",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "PreciseBN",
    "TensorboardXWriter",
    "TorchMemoryStats",
    "TorchProfiler",
    "VisdomWriter",
    "get_event_storage",
    "has_event_storage",
    "hooks",
]

DIALECT = step_dialect("detectron2", TrainerFacade, further=("after_backward",))

DetectionCheckpointer = Checkpointer
