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

from lightning_hooks.dialects.steps import base, checkpoints, hooks, lr, precise_bn, storage, timer
from lightning_hooks.dialects.steps.checkpointer import Checkpointer as Checkpointer
from lightning_hooks.dialects.steps.facade import TrainerFacade, step_dialect
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.writers import CommonMetricPrinter as CommonMetricPrinter
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
    "VisdomWriter",
    "get_event_storage",
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


class EventStorage(storage.EventStorage):
    """The scalars, images and histograms of a run; values come with their iterations."""

    def latest(self) -> dict[str, tuple[float, int]]:
        """Return the last value of every scalar, with its iteration."""
        return self.latest_values()

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """Return the same, with the median of a window for scalars that should be smoothed."""
        return self.latest_values(window_size)

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of values in the last ``window_size`` iterations of a scalar."""
        history = self.history(name)
        return history.count_since(history.last_iteration() - window_size)


get_event_storage = EventStorage.innermost


class _Facade(TrainerFacade):
    storage_class = EventStorage
    packages = ("detectron2",)


DIALECT = step_dialect("detectron2", _Facade, further=("after_backward",))

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
