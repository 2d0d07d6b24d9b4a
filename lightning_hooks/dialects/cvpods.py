"""Hooks of cvpods, and of cvpack2, as which it began: ``import ... as`` in place of its own names.

The loop, with the points of a hook (they take no argument; ``self.trainer`` is there)::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        trainer.run_step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when something above has raised

Values follow cvpods where it differs from detectron2: ``EventStorage.latest()`` and
``latest_with_smoothing_hint()`` give a value by name, without its iteration; ``PeriodicWriter``
also writes after the first iteration.
"""

from __future__ import annotations

from collections.abc import Callable
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
    "CallbackHook",
    "Checkpointer",
    "CommonMetricPrinter",
    "EvalHook",
    "EventStorage",
    "EventWriter",
    "HistoryBuffer",
    "HookBase",
    "IterationTimer",
    "JSONWriter",
    "LRScheduler",
    "OptimizationHook",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "PreciseBN",
    "TensorboardXWriter",
    "VisdomWriter",
    "get_event_storage",
]

_CURRENT: Current = ContextVar("cvpods storages")


class HookBase(HostedOnly):
    """The base of cvpods' hooks: override the points that you need.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``epoch``, ``start_epoch``,
    ``inner_iter``, ``step_outputs``, ``storage``, ``optimizer``, ``model`` and ``data_loader``.
    """

    trainer: Any = None

    def before_train(self) -> None:
        """Before the first iteration."""

    def after_train(self) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self) -> None:
        """Before each iteration."""

    def after_step(self) -> None:
        """After each iteration; ``trainer.iter`` does not count it yet."""


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


class _Facade(TrainerFacade):
    storage_class = EventStorage
    library = "cvpods.utils.dump.events"


DIALECT = Dialect(
    name="cvpods",
    points=POINTS,
    facade=_Facade,
    arguments=no_arguments,
    base="HookBase",
    attends=("before_train_iter", "after_train_iter"),
    on_error=("after_train",),
    owners=("OptimizationHook",),
)


# -- hooks -------------------------------------------------------------------------------------


class IterationTimer(timer.IterationTimer, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.timer.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """Has writers write after the first iteration, every ``period``, and after the last one.

    Args:
        writers: Objects with ``write()`` and ``close()``; they are used on rank 0.
        period: Iterations from one writing to the next.
    """

    _at_first = True
    _writes_at_end = False


class PeriodicCheckpointer(files.PeriodicCheckpointer, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.files.PeriodicCheckpointer`.

    Args:
        checkpointer: As there.
        period: Iterations from one file to the next.
        max_iter: When the last one is; the Trainer's by default.
        max_epoch: Epochs of the run: with them the names are ``{file_prefix}_epoch_{epoch:04d}``.
        max_to_keep: As there.
        file_prefix: How the names begin.
    """

    def __init__(
        self,
        checkpointer: Any,
        period: int,
        max_iter: int | None = None,
        max_epoch: int | None = None,
        max_to_keep: int | None = None,
        file_prefix: str = "model",
    ) -> None:
        super().__init__(checkpointer, period, max_iter, max_to_keep, file_prefix)
        if max_epoch is not None and (not isinstance(max_epoch, int) or max_epoch < 1):
            raise ValueError(f"max_epoch must be an int of at least 1, or None, got {max_epoch!r}")
        self.max_epoch = max_epoch

    def name(self, iteration: int) -> str:
        """The name of an iteration's file."""
        if self.max_epoch is None or self.max_iter is None:
            return super().name(iteration)
        epoch = (iteration + 1) // (self.max_iter // self.max_epoch)
        return f"{self.file_prefix}_epoch_{epoch:04d}"


class LRScheduler(lr.LRScheduler, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.lr.LRScheduler`."""


class AutogradProfiler(files.AutogradProfiler, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.files.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`."""

    _last_in_after_train = False


class PreciseBN(hooks.PreciseBN, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


class OptimizationHook(HookBase):
    """Runs backward, clips and steps the optimizer, in place of the Trainer.

    Args:
        accumulate_grad_steps: Iterations whose gradients are added up for one step; the loss of
            each is divided by it.
        grad_clipper: Called with the model's parameters before a step.
        mixed_precision: Refused: the Trainer's ``precision`` does that.
    """

    def __init__(
        self,
        accumulate_grad_steps: int = 1,
        grad_clipper: Callable[[Any], Any] | None = None,
        mixed_precision: bool = False,
    ) -> None:
        if not isinstance(accumulate_grad_steps, int) or accumulate_grad_steps < 1:
            raise ValueError(
                f"accumulate_grad_steps must be an int of at least 1, got {accumulate_grad_steps!r}"
            )
        if mixed_precision:
            raise ValueError(
                f"mixed_precision must be False, got {mixed_precision!r}: "
                'pass Trainer(precision="bf16-mixed")'
            )
        self.accumulate_grad_steps = accumulate_grad_steps
        self.grad_clipper = grad_clipper

    def before_step(self) -> None:
        """Forget the gradients of the step before."""
        if self.trainer.inner_iter == 0:
            self.trainer.optimizer.zero_grad()

    def after_step(self) -> None:
        """Run backward, and step after so many iterations."""
        trainer = self.trainer
        (trainer.step_outputs["loss_for_backward"] / self.accumulate_grad_steps).backward()
        if trainer.inner_iter >= self.accumulate_grad_steps:
            if self.grad_clipper is not None:
                self.grad_clipper(trainer.model.parameters())
            trainer.optimizer.step()
            trainer.inner_iter = 0


# -- writers -----------------------------------------------------------------------------------


class EventWriter(writers.EventWriter):
    """cvpods' :class:`~lightning_hooks.dialects.steps.writers.EventWriter`."""

    def storage(self) -> EventStorage:
        """The storage of the run."""
        return get_event_storage()


class JSONWriter(EventWriter, writers.WholeJSONWriter):
    """cvpods' :class:`~lightning_hooks.dialects.steps.writers.WholeJSONWriter`."""


class TensorboardXWriter(EventWriter, writers.TensorboardXWriter):
    """cvpods' :class:`~lightning_hooks.dialects.steps.writers.TensorboardXWriter`."""


class CommonMetricPrinter(EventWriter, writers.CommonMetricPrinter):
    """cvpods' :class:`~lightning_hooks.dialects.steps.writers.CommonMetricPrinter`."""


class VisdomWriter(EventWriter, visdom.VisdomWriter):
    """cvpods' :class:`~lightning_hooks.dialects.steps.visdom.VisdomWriter`."""
