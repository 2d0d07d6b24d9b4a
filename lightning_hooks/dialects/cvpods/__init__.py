"""Hooks of cvpods (formerly cvpack2): import them from here in place of its own modules.

The loop, with the points of a hook (they take no argument; ``self.trainer`` is there)::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        trainer.run_step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when something above has raised

Values follow cvpods where it differs from detectron2: ``PeriodicWriter`` also writes after the
first iteration, and a storage is that of one of two generations.

=====================================  ====================  ===================================
generation                             dialect               ``EventStorage.latest()`` gives
=====================================  ====================  ===================================
cvpack2, cvpods of 2021 (as in YOLOF)  ``"cvpods"``          a value by name
cvpods since then (its main branch)    ``"cvpods_master"``   a value and its iteration by name
=====================================  ====================  ===================================

Where the library itself is loaded, or a copy of it with the hooks, ``"cvpods"`` is as that one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_hooks.dialects.cvpods.facade import EventStorage as EventStorage
from lightning_hooks.dialects.cvpods.facade import MasterEventStorage as MasterEventStorage
from lightning_hooks.dialects.cvpods.facade import MasterRunnerFacade, RunnerFacade
from lightning_hooks.dialects.steps import base, checkpoints, hooks, lr, precise_bn, timer, writers
from lightning_hooks.dialects.steps.checkpointer import Checkpointer as Checkpointer
from lightning_hooks.dialects.steps.facade import step_dialect
from lightning_hooks.dialects.steps.history import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.steps.writers import CommonMetricPrinter as CommonMetricPrinter
from lightning_hooks.dialects.steps.writers import EventWriter as EventWriter
from lightning_hooks.dialects.steps.writers import TensorboardXWriter as TensorboardXWriter
from lightning_hooks.dialects.steps.writers import VisdomWriter as VisdomWriter

__all__ = [
    "DIALECT",
    "MASTER",
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
    "MasterEventStorage",
    "OptimizationHook",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "PreciseBN",
    "TensorboardXWriter",
    "VisdomWriter",
    "get_event_storage",
]


class HookBase(base.HookBase):
    """The base of cvpods' hooks: override the points that you need.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``epoch``, ``start_epoch``,
    ``inner_iter``, ``step_outputs``, ``storage``, ``optimizer``, ``model`` and ``data_loader``.
    """

    hook_dialect = "cvpods"


get_event_storage = EventStorage.innermost

DIALECT = step_dialect("cvpods", RunnerFacade, owners=("OptimizationHook",))
MASTER = step_dialect("cvpods_master", MasterRunnerFacade, owners=("OptimizationHook",))


class JSONWriter(writers.SnapshotJSONWriter):
    """Appends to a file: in each write, every scalar as one JSON object.

    In ``"cvpods_master"`` the new scalars, one object for each iteration that has some, as in
    :class:`~lightning_hooks.dialects.steps.writers.JSONWriter`.

    Args:
        json_file: Path of the file; it is opened by the first write.
        window_size: Number of values whose median is written for a scalar with a smoothing hint.
    """

    def write(self) -> None:
        """Append the scalars."""
        if isinstance(self.storage(), MasterEventStorage):
            writers.JSONWriter.write(self)
        else:
            super().write()


class IterationTimer(timer.IterationTimer, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.timer.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """Calls writers after the first iteration, at the end of every period and after the last one.

    Args:
        writers: Objects with ``write()`` and ``close()``; only rank 0 uses them.
        period: Number of iterations between two writes.
    """

    _writes_first = True
    _writes_after_train = False


class PeriodicCheckpointer(checkpoints.PeriodicCheckpointer, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.checkpoints.PeriodicCheckpointer`.

    Args:
        checkpointer: Same as there.
        period: Number of iterations between two files.
        max_iter: Number of iterations of the run; the Trainer's by default.
        max_epoch: Number of epochs of the run; if given, files are named
            ``{file_prefix}_epoch_{epoch:04d}``.
        max_to_keep: Same as there.
        file_prefix: Prefix of the names.
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
        """Return the name of an iteration's file."""
        if self.max_epoch is None or self.max_iter is None:
            return super().name(iteration)
        epoch = (iteration + 1) // (self.max_iter // self.max_epoch)
        return f"{self.file_prefix}_epoch_{epoch:04d}"


class LRScheduler(lr.LRScheduler, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.lr.LRScheduler`."""


class AutogradProfiler(hooks.AutogradProfiler, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`."""

    _last_in_after_train = False


class PreciseBN(precise_bn.PreciseBN, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.precise_bn.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """cvpods' :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


class OptimizationHook(HookBase):
    """Runs backward, clips and steps the optimizer, instead of the Trainer.

    Args:
        accumulate_grad_steps: Number of iterations whose gradients are accumulated for one step;
            each loss is divided by it.
        grad_clipper: Function of the model's parameters, called before a step.
        mixed_precision: Must be False; use the Trainer's ``precision``.
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
        """Clear the gradients of the previous step."""
        if self.trainer.inner_iter == 0:
            self.trainer.optimizer.zero_grad()

    def after_step(self) -> None:
        """Run backward, and step after ``accumulate_grad_steps`` iterations."""
        trainer = self.trainer
        (trainer.step_outputs["loss_for_backward"] / self.accumulate_grad_steps).backward()
        if trainer.inner_iter >= self.accumulate_grad_steps:
            if self.grad_clipper is not None:
                self.grad_clipper(trainer.model.parameters())
            trainer.optimizer.step()
