"""Hooks of detectron2: import them from here in place of its own modules.

The loop, with the points of a hook (they take no argument; ``self.trainer`` is there)::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        losses.backward()  # in trainer.run_step()
        hook.after_backward()
        optimizer.step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when something above has raised

A hook's ``state_dict()`` is saved in every checkpoint of Lightning's.
"""

from __future__ import annotations

from typing import Any

from lightning_hooks.dialects.detectron2 import profiling
from lightning_hooks.dialects.detectron2.facade import TrainerFacade
from lightning_hooks.dialects.detectron2.printer import CommonMetricPrinter as CommonMetricPrinter
from lightning_hooks.dialects.detectron2.storage import EventStorage as EventStorage
from lightning_hooks.dialects.detectron2.storage import get_event_storage as get_event_storage
from lightning_hooks.dialects.detectron2.storage import has_event_storage as has_event_storage
from lightning_hooks.dialects.steps import base, checkpoints, hooks, lr, precise_bn, timer
from lightning_hooks.dialects.steps.checkpointer import Checkpointer as Checkpointer
from lightning_hooks.dialects.steps.facade import step_dialect
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
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
]


class HookBase(base.HookBase):
    """The base of detectron2's hooks: override the points that you need.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    hook_dialect = "detectron2"

    def after_backward(self) -> None:
        """After each backward pass, before the optimizer's step."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs in a resumed run; an empty dict is not saved."""
        return {}


DIALECT = step_dialect("detectron2", TrainerFacade, further=("after_backward",))

DetectionCheckpointer = Checkpointer


class IterationTimer(timer.IterationTimer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.timer.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PeriodicWriter`."""


class PeriodicCheckpointer(checkpoints.PeriodicCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.PeriodicCheckpointer`."""


class BestCheckpointer(checkpoints.BestCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.BestCheckpointer`."""


class LRScheduler(lr.LRScheduler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.lr.LRScheduler`."""


class AutogradProfiler(hooks.AutogradProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`."""


class PreciseBN(precise_bn.PreciseBN, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.precise_bn.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


class TorchProfiler(profiling.TorchProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.detectron2.profiling.TorchProfiler`."""


class TorchMemoryStats(profiling.TorchMemoryStats, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.detectron2.profiling.TorchMemoryStats`."""
