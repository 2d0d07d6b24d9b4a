"""Hooks, storage and writers of cvpods (formerly cvpack2), importable without cvpods.

The loop, with the points of a hook, called without arguments; ``self.trainer`` is set::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        trainer.run_step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when the loop has raised

The classes follow cvpods in its differences from detectron2: ``PeriodicWriter`` also writes after
the first iteration. Two generations of cvpods have different storages:

=====================================  ====================  ===================================
generation                             dialect               ``EventStorage.latest()`` gives
=====================================  ====================  ===================================
cvpack2, cvpods of 2021 (as in YOLOF)  ``"cvpods"``          a value by name
cvpods since then (its main branch)    ``"cvpods_master"``   a value and its iteration by name
=====================================  ====================  ===================================

If the library, or a project's copy of the library, is loaded, ``"cvpods"`` follows the loaded
version.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lightning_hooks.dialects import detectron2, events
from lightning_hooks.dialects.detectron2 import Checkpointer
from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.events import (
    CommonMetricPrinter,
    EventWriter,
    HistoryBuffer,
    JSONWriter,
    TensorboardXWriter,
)
from lightning_hooks.dialects.step_loop import StepFacade, step_dialect
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_int, shown

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


_MAX_ITERATIONS_WITHOUT_STEP = 100
"""Iterations without a step of the optimizer before a warning."""


class EventStorage(events.EventStorage):
    """The scalars, images and histograms of a run."""


class MasterEventStorage(EventStorage):
    """The storage of cvpods' main branch; readings return values with iterations."""

    with_iterations = True


class RunnerFacade(StepFacade):
    """``self.trainer`` of cvpods' hooks.

    ``inner_iter`` counts the iterations since the optimizer's last step. The count also restarts
    from 0 after ``accumulate_grad_steps`` iterations, declared by a hook: hooks of cvpods compare
    both for equality.
    """

    storage_class = EventStorage

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._first_count = self._count = runner.optimizer_steps
        self._last_step = self.iter
        self._has_warned = False

    def new_storage(self, start_iter: int) -> events.EventStorage:
        """Make the storage of the loaded generation of cvpods, else the dialect's."""
        is_master = self._dialect is MASTER or any(map(events.gives_iterations, self._library))
        return (MasterEventStorage if is_master else EventStorage)(start_iter)

    def at_before_train_iter(self) -> None:
        """Restart ``inner_iter`` after a step of the optimizer or a whole window."""
        super().at_before_train_iter()
        count = self.native_runner.optimizer_steps
        if count != self._count:
            self._count, self._last_step, self.inner_iter = count, self.iter, 0
            return
        if self.iter - self._last_step >= _MAX_ITERATIONS_WITHOUT_STEP:
            self._warn_of_no_step()
        if self.inner_iter >= self._window():
            self.inner_iter = 0

    def _window(self) -> float:
        """Return the smallest ``accumulate_grad_steps`` of the hooks, else infinity."""
        hooks = [hosted.foreign_hook for hosted in self.hosted_hooks()]
        declared = [getattr(hook, "accumulate_grad_steps", None) for hook in hooks]
        return min((number for number in declared if isinstance(number, int)), default=math.inf)

    def report(self) -> None:
        """Warn also of a run without a step of the optimizer."""
        super().report()
        if self.native_runner.optimizer_steps == self._first_count and self.iter > self.start_iter:
            self._warn_of_no_step()

    def _warn_of_no_step(self) -> None:
        if self._has_warned or not self.native_runner.hooks_own_step:
            return
        self._has_warned = True
        hosted = list(self.hosted_hooks())
        stepping = [each for each in hosted if each._owns_backward(None)]
        stepping = stepping or [each for each in hosted if each.implements("after_step")]
        self.native_runner.logger.warning(
            "%s.after_step: the optimizer has not been stepped in %d iterations, so nothing was "
            "trained; there trainer.inner_iter is %d",
            ", ".join(map(class_name, stepping)),
            self.iter - self._last_step,
            self.inner_iter,
        )


class HookBase(detectron2.HookBase):
    """The base of cvpods' hooks: override any of the points.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``epoch``, ``start_epoch``,
    ``inner_iter``, ``step_outputs``, ``storage``, ``optimizer``, ``model`` and ``data_loader``.
    """

    hook_dialect = "cvpods"


get_event_storage = EventStorage.innermost

DIALECT = step_dialect(
    "cvpods", RunnerFacade, owners=("OptimizationHook",), further_packages=("cvpods", "cvpack2")
)
MASTER = dataclasses.replace(DIALECT, name="cvpods_master")


class VisdomWriter(events.VisdomWriter):
    """Draws scalars as lines on a Visdom server, and shows images.

    Args:
        host: Name or URL of the server.
        port: The server's port.
        window_size: Number of values in the median of a scalar with a smoothing hint.
        interested_keys: Names of the drawn scalars; all by default.
        kwargs: Further arguments of
            :class:`~lightning_hooks.dialects.events.VisdomWriter`.
    """

    def __init__(
        self,
        host: str = "http://localhost",
        port: int = 8097,
        window_size: int = 20,
        interested_keys: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(window_size, **{"server": host, "port": port, **kwargs})
        self.interested_keys = interested_keys

    def _new_scalars(self) -> list[events.Scalar]:
        keys = self.interested_keys
        return [each for each in super()._new_scalars() if keys is None or each[0] in keys]


H = TypeVar("H", bound=detectron2.HookBase)


def _of_cvpods(hook: type[H], **attributes: Any) -> type[H]:
    """Return a hook of detectron2 as a hook of cvpods, with changed class attributes."""
    attributes = {"__module__": __name__, "__doc__": hook.__doc__, **attributes}
    return type(hook.__name__, (hook, HookBase), attributes)


IterationTimer = _of_cvpods(detectron2.IterationTimer)
PeriodicWriter = _of_cvpods(detectron2.PeriodicWriter, writes_first=True, writes_after_train=False)
LRScheduler = _of_cvpods(detectron2.LRScheduler)
AutogradProfiler = _of_cvpods(detectron2.AutogradProfiler)
PreciseBN = _of_cvpods(detectron2.PreciseBN)
CallbackHook = _of_cvpods(detectron2.CallbackHook)


class EvalHook(detectron2.EvalHook, HookBase):
    """Calls an evaluation every period and after the last iteration; stores its results.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: As in detectron2's :class:`~lightning_hooks.dialects.detectron2.EvalHook`.
    """

    def __init__(self, eval_period: int, eval_function: Callable[[], Any]) -> None:
        super().__init__(eval_period, eval_function, eval_after_train=False)

    def after_step(self) -> None:
        """Evaluate if the iteration ends a period or the run."""
        if detectron2.is_due(self.trainer.iter, self._period, self.trainer.max_iter):
            self._act()


class PeriodicCheckpointer(detectron2.PeriodicCheckpointer, HookBase):
    """Saves a checkpoint every period, with names by iteration or by epoch, and at the end.

    Args:
        checkpointer: As in the base class.
        period: Number of iterations between two files.
        max_iter: Number of iterations of the run; the Trainer's by default.
        max_epoch: Number of epochs of the run; if given, the names are
            ``{file_prefix}_epoch_{epoch:04d}``.
        max_to_keep: As in the base class.
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
        if max_epoch is not None:
            check_int("max_epoch", max_epoch, 1)
        self.max_epoch = max_epoch

    def name(self, iteration: int) -> str:
        """Return the name of an iteration's file."""
        if self.max_epoch is None or self.max_iter is None:
            return super().name(iteration)
        epoch = (iteration + 1) // (self.max_iter // self.max_epoch)
        return f"{self.file_prefix}_epoch_{epoch:04d}"


class OptimizationHook(HookBase):
    """Runs backward, clips and steps the optimizer, instead of the Trainer.

    Args:
        accumulate_grad_steps: Number of iterations accumulated for a step; each loss is divided
            by this number.
        grad_clipper: Function of the model's parameters, called before a step.
        mixed_precision: Must be False; use the Trainer's ``precision``.
    """

    def __init__(
        self,
        accumulate_grad_steps: int = 1,
        grad_clipper: Callable[[Any], Any] | None = None,
        mixed_precision: bool = False,
    ) -> None:
        check_int("accumulate_grad_steps", accumulate_grad_steps, 1)
        if mixed_precision:
            raise ValueError(
                f"mixed_precision must be False, got {shown(mixed_precision)}: "
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
