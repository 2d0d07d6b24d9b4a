"""Hooks, storage, writers and timers of Pet, importable without Pet.

The loop, with the points of a hook. A point is called with the keywords in its signature, without a
trainer. Iterations count from 1::

    hook.before_train()
    for iteration in range(start_iter, max_iter + 1):
        hook.before_step(storage=storage)
        # forward, backward, the optimizer's step
        hook.after_step(storage=storage, epoch=..., max_epoch=..., max_epochs=...)
        storage.step()
    hook.after_train(storage=storage)  # also when the loop has raised

``epoch`` counts from 1 too; ``max_epoch`` (older loops) equals ``max_epochs`` (newer loops). In a
run counted in iterations (``HookAdapter(by_epoch=False)``), as in Pet's detection loop,
``after_step`` gets the storage alone. ``EventStorage.latest()`` returns values by name, without
iterations. :class:`~lightning_hooks.dialects.pet.test_hook.TestHook` times a test.
"""

from __future__ import annotations

from typing import Any

from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.pet.hooks import IterationTimer as IterationTimer
from lightning_hooks.dialects.pet.hooks import JSONWriter as JSONWriter
from lightning_hooks.dialects.pet.hooks import LRScheduler as LRScheduler
from lightning_hooks.dialects.pet.hooks import PeriodicWriter as PeriodicWriter
from lightning_hooks.dialects.pet.hooks import PreciseBN as PreciseBN
from lightning_hooks.dialects.pet.hooks import TrainHook as TrainHook
from lightning_hooks.dialects.pet.hooks import accepted_keywords
from lightning_hooks.dialects.pet.test_hook import TestHook as TestHook
from lightning_hooks.dialects.pet.tools import EventStorage as EventStorage
from lightning_hooks.dialects.pet.tools import Timer as Timer
from lightning_hooks.dialects.pet.tools import get_bn_modules as get_bn_modules
from lightning_hooks.dialects.pet.tools import logging_rank as logging_rank
from lightning_hooks.dialects.pet.tools import update_bn_stats as update_bn_stats
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.trainer_facade import StepFacade, step_dialect
from lightning_hooks.dialects.steps.writers import CommonMetricPrinter as CommonMetricPrinter
from lightning_hooks.dialects.steps.writers import EventWriter as EventWriter
from lightning_hooks.dialects.steps.writers import TensorboardXWriter as TensorboardXWriter
from lightning_hooks.dialects.steps.writers import VisdomWriter as VisdomWriter

__all__ = [
    "DIALECT",
    "CommonMetricPrinter",
    "EventStorage",
    "EventWriter",
    "HistoryBuffer",
    "IterationTimer",
    "JSONWriter",
    "LRScheduler",
    "PeriodicWriter",
    "PreciseBN",
    "TensorboardXWriter",
    "TestHook",
    "Timer",
    "TrainHook",
    "VisdomWriter",
    "get_bn_modules",
    "get_event_storage",
    "logging_rank",
    "update_bn_stats",
]


get_event_storage = EventStorage.innermost


class _Facade(StepFacade):
    storage_class = EventStorage
    packages = ("pet",)
    first_iter = 1

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.accepted: dict[tuple[int, str], set[str] | None] = {}
        """The keywords accepted by methods, by the hook's id and the point."""


def _arguments(facade: _Facade, point: str, method: Any) -> Arguments:
    if point == "before_train":
        return (), {}
    values: dict[str, Any] = {"storage": facade.storage}
    if point == "after_step" and facade.counts_epochs:
        epochs = facade.max_epoch
        values |= {"epoch": facade.epoch + 1, "max_epoch": epochs, "max_epochs": epochs}
    key = id(getattr(method, "__self__", method)), point
    if key not in facade.accepted:
        facade.accepted[key] = accepted_keywords(method)
    names = facade.accepted[key]
    return (), values if names is None else {k: v for k, v in values.items() if k in names}


DIALECT = step_dialect("pet", _Facade, arguments=_arguments, base="TrainHook")
