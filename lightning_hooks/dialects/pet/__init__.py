"""Hooks of Pet: ``import ... as`` in place of its own names.

The loop, with the points of a hook. There is no trainer: a hook is given by keyword what its
signature accepts, and was given the rest when it was made. Iterations count from 1::

    hook.before_train()
    for iteration in range(start_iter, max_iter + 1):
        hook.before_step(storage=storage)
        # forward, backward, the optimizer's step
        hook.after_step(storage=storage, epoch=..., max_epoch=..., max_epochs=...)
        storage.step()
    hook.after_train(storage=storage)  # also when something above has raised

``epoch`` counts from 1 too; ``max_epoch`` and ``max_epochs`` are the same, by the names that older
and newer loops use. ``EventStorage.latest()`` gives a value by name, without its iteration.
:class:`~lightning_hooks.dialects.pet.test_hook.TestHook` times a test.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import Any

from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.pet.hooks import IterationTimer as IterationTimer
from lightning_hooks.dialects.pet.hooks import LRScheduler as LRScheduler
from lightning_hooks.dialects.pet.hooks import PeriodicWriter as PeriodicWriter
from lightning_hooks.dialects.pet.hooks import PreciseBN as PreciseBN
from lightning_hooks.dialects.pet.hooks import TrainHook as TrainHook
from lightning_hooks.dialects.pet.test_hook import TestHook as TestHook
from lightning_hooks.dialects.steps import visdom, writers
from lightning_hooks.dialects.steps.facade import POINTS, StepFacade
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.storage import Current, innermost
from lightning_hooks.dialects.steps.storage import EventStorage as _EventStorage

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
    "TrainHook",
    "VisdomWriter",
    "get_event_storage",
]

_CURRENT: Current = ContextVar("Pet storages")


class EventStorage(_EventStorage):
    """What a run has put in: scalars, images, histograms."""

    current = _CURRENT


def get_event_storage() -> EventStorage:
    """Return the storage of the run or ``with`` block that goes on.

    Raises:
        AssertionError: if there is none.
    """
    storage: Any = innermost(_CURRENT)
    return storage  # type: ignore[no-any-return]


class _Facade(StepFacade):
    storage_class = EventStorage
    first_iter = 1

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.accepted: dict[tuple[int, str], set[str] | None] = {}


def _keywords(facade: Facade, point: str, method: Any) -> Arguments:
    if point == "before_train" or not isinstance(facade, _Facade):
        return (), {}
    given: dict[str, Any] = {"storage": facade.storage}
    if point == "after_step":
        epochs = facade.max_epoch
        given |= {"epoch": facade.epoch + 1, "max_epoch": epochs, "max_epochs": epochs}
    key = id(getattr(method, "__self__", method)), point
    if key not in facade.accepted:
        facade.accepted[key] = _accepted(method)
    names = facade.accepted[key]
    return (), given if names is None else {k: v for k, v in given.items() if k in names}


def _accepted(method: Any) -> set[str] | None:
    """The keywords that a method takes; None: any."""
    parameters = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


DIALECT = Dialect(
    name="pet",
    points=POINTS,
    facade=_Facade,
    arguments=_keywords,
    base="TrainHook",
    attends=("before_train_iter", "after_train_iter"),
    on_error=("after_train",),
)


# -- writers -----------------------------------------------------------------------------------


class EventWriter(writers.EventWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.EventWriter`."""

    def storage(self) -> EventStorage:
        """The storage of the run."""
        return get_event_storage()


class JSONWriter(EventWriter, writers.WholeJSONWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.WholeJSONWriter`."""


class TensorboardXWriter(EventWriter, writers.TensorboardXWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.TensorboardXWriter`."""


class CommonMetricPrinter(EventWriter, writers.CommonMetricPrinter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.CommonMetricPrinter`."""


class VisdomWriter(EventWriter, visdom.VisdomWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.visdom.VisdomWriter`."""
