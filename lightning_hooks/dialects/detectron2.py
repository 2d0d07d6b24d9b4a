"""Hooks of detectron2: ``import ... as`` in place of its own names.

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

from contextvars import ContextVar
from typing import Any

from lightning_hooks.dialects.dialect import Dialect, no_arguments
from lightning_hooks.dialects.steps import files, hooks, lr, timer, visdom, writers
from lightning_hooks.dialects.steps.checkpointer import Checkpointer as Checkpointer
from lightning_hooks.dialects.steps.facade import POINTS, TrainerFacade
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.storage import Current, innermost
from lightning_hooks.dialects.steps.storage import EventStorage as _EventStorage
from lightning_hooks.engine.usage_errors import HostedOnly

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

_CURRENT: Current = ContextVar("detectron2 storages")


class HookBase(HostedOnly):
    """The base of detectron2's hooks: override the points that you need.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    trainer: Any = None

    def before_train(self) -> None:
        """Before the first iteration."""

    def after_train(self) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self) -> None:
        """Before each iteration."""

    def after_backward(self) -> None:
        """After each backward pass, before the optimizer's step."""

    def after_step(self) -> None:
        """After each iteration; ``trainer.iter`` does not count it yet."""

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs in a run that goes on; nothing is saved if it is empty."""
        return {}


class EventStorage(_EventStorage):
    """What a run has put in; ``latest()`` and the like give ``(value, iteration)`` by name."""

    current = _CURRENT

    def latest(self) -> dict[str, tuple[float, int]]:
        """The last value of every scalar, and when it was put."""
        return self.latest_values()

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """As ``latest()``, with the median in a window where a scalar should be smoothed."""
        return self.latest_values(window_size)

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """How many values were put in the last ``window_size`` iterations of a scalar."""
        history = self.history(name)
        return history.count_since(history.last_iteration() - window_size)


def get_event_storage() -> EventStorage:
    """Return the storage of the run or ``with`` block that goes on.

    Raises:
        AssertionError: if there is none.
    """
    storage: Any = innermost(_CURRENT)
    return storage  # type: ignore[no-any-return]


class _Facade(TrainerFacade):
    storage_class = EventStorage
    library = "detectron2.utils.events"


DIALECT = Dialect(
    name="detectron2",
    points=POINTS,
    facade=_Facade,
    arguments=no_arguments,
    base="HookBase",
    attends=("before_train_iter", "after_train_iter"),
    on_error=("after_train",),
    further=("after_backward",),
)

DetectionCheckpointer = Checkpointer


# -- hooks -------------------------------------------------------------------------------------


class IterationTimer(timer.IterationTimer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.timer.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PeriodicWriter`."""


class PeriodicCheckpointer(files.PeriodicCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.files.PeriodicCheckpointer`."""


class BestCheckpointer(files.BestCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.files.BestCheckpointer`."""


class LRScheduler(lr.LRScheduler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.lr.LRScheduler`."""


class AutogradProfiler(files.AutogradProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.files.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`."""


class PreciseBN(hooks.PreciseBN, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


# -- writers -----------------------------------------------------------------------------------


class EventWriter(writers.EventWriter):
    """detectron2's :class:`~lightning_hooks.dialects.steps.writers.EventWriter`."""

    def storage(self) -> EventStorage:
        """The storage of the run."""
        return get_event_storage()


class JSONWriter(EventWriter, writers.JSONWriter):
    """detectron2's :class:`~lightning_hooks.dialects.steps.writers.JSONWriter`."""


class TensorboardXWriter(EventWriter, writers.TensorboardXWriter):
    """detectron2's :class:`~lightning_hooks.dialects.steps.writers.TensorboardXWriter`."""


class CommonMetricPrinter(EventWriter, writers.CommonMetricPrinter):
    """detectron2's :class:`~lightning_hooks.dialects.steps.writers.CommonMetricPrinter`."""


class VisdomWriter(EventWriter, visdom.VisdomWriter):
    """detectron2's :class:`~lightning_hooks.dialects.steps.visdom.VisdomWriter`."""
