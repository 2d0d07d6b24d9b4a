"""What detectron2, cvpods and Pet share: a loop of steps with an event storage."""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Iterable
from operator import attrgetter
from types import ModuleType
from typing import Any

import lightning as L
import torch

from lightning_hooks.dialects import events
from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.hosting import Facade, Hosted, has_base, of_runner
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["StepFacade", "step_dialect"]

LOADS_AFTER = ("before_train_epoch", "after_train_iter", "after_val_epoch")
"""The points of mmcv after which the Trainer loads the next batch."""


class StepFacade(Facade):
    """The trainer of a loop of steps: ``self.trainer`` of detectron2's and cvpods' hooks.

    ``before_train()``, ``before_step()`` and the other points call the point of all hooks.

    After each step the storage gets:

    ==============  =======================================================================
    name            value
    ==============  =======================================================================
    ``total_loss``  the step's loss
    other names     the step's ``log_vars``, the other scalar tensors returned by the step,
                    and the values logged by the module with ``self.log(on_step=True)``
    ``data_time``   seconds to the start of this step, from the end of the previous step, of a
                    validation between them, or from the start of the epoch
    ==============  =======================================================================

    On several ranks each storage has the values of its own rank: no step waits for the other ranks.
    A scalar put by the module in this step is not overwritten.
    """

    storage_class: type[events.EventStorage]
    first_iter = 0
    """Number of the first iteration in the storage."""
    is_trainer = True
    """Whether hooks get the facade as ``self.trainer``; Pet's hooks get the storage alone."""

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.start_iter = runner.iter
        self.start_epoch = runner.epoch
        self.inner_iter = 0
        self.step_outputs: dict[str, Any] = {}
        self._library = _library_of(dialect, self.hosted_hooks())
        self.storage = self.new_storage(self.start_iter + self.first_iter)
        self.storage.may_write = runner.may_write
        self._entered_storages = contextlib.ExitStack()
        self._loading_since: float | None = None
        self._loading_time: float | None = None

    def __getattr__(self, name: str) -> Any:
        if name in self._dialect.methods:
            return functools.partial(self.call_hook, name)
        return super().__getattr__(name)

    max_iter = of_runner("max_iters", assigned="_max_iters")
    """Number of iterations of the run, None if unknown; can be assigned."""
    max_epoch = property(attrgetter("native_runner.max_epochs"))
    """Number of epochs of the run; None if the run is counted in iterations."""
    data_loader = property(attrgetter("native_runner.data_loader"))
    """The training loader."""

    @property
    def scheduler(self) -> Any:
        """The Trainer's learning rate scheduler, stepped by Lightning."""
        configs = self.native_runner.trainer.lr_scheduler_configs
        if not configs:
            raise AttributeError("the Trainer has no scheduler; give one to LRScheduler(...)")
        return configs[0].scheduler

    # -- events ----------------------------------------------------------------------------

    def new_storage(self, start_iter: int) -> events.EventStorage:
        """Make the storage of the run."""
        return self.storage_class(start_iter)

    def begin(self) -> None:
        """Attach the hooks, and enter the storage here and in the loaded library."""
        super().begin()
        for hosted in self.hosted_hooks():
            for point in filter(hosted.implements, ("before_epoch", "after_epoch")):  # fast-reid's
                self.native_runner.logger.warning(
                    "%s.%s() is never called: the loop of %s has steps and no epochs; move the "
                    "code to after_step",
                    *(class_name(hosted), point, self._dialect.name),
                )
            if has_base(hosted.foreign_hook, "LRScheduler"):
                self.check_stepped_once(hosted, vars(hosted.foreign_hook).values())
        self._entered_storages.enter_context(self.storage)
        self._entered_storages.enter_context(events.in_library(self.storage, self._library))

    def attach(self, hosted: Hosted) -> None:
        """Set the hook's ``trainer`` to a weak reference, as the libraries do."""
        super().attach(hosted)
        if self.is_trainer:
            hosted.foreign_hook.trainer = weakref.proxy(self)

    def enter_point(self, point: str) -> None:
        """Make the storage the innermost, for writers."""
        super().enter_point(point)
        self.storage.bring_forward()

    def at_before_train_iter(self) -> None:
        """Set the storage's iteration, and take the loading time."""
        self.storage.iter = self.iter + self.first_iter
        if self._loading_since is not None:
            self._loading_time = time.perf_counter() - self._loading_since

    def at_after_train_iter(self) -> None:
        """Store the results of the step."""
        outputs = dict(getattr(self.native_runner, "outputs", None) or {})
        self.inner_iter += 1
        self.step_outputs = outputs
        if "loss" in outputs:
            loss = outputs["loss"]
            if self.native_runner.hooks_own_step:
                loss = loss.clone()  # hooks may divide the loss in place
            self.step_outputs = {**outputs, "loss_for_backward": loss}
        if self._loading_time is not None:
            self.storage.feed(self._times(self._loading_time))
        self.storage.feed(self._new_scalars(outputs))

    def _times(self, loading: float) -> dict[str, float]:
        """Return the times stored after a step."""
        return {"data_time": loading}

    def after_call(self, point: str) -> None:
        """Take the time: the Trainer loads the next batch now."""
        if point in LOADS_AFTER:
            self._loading_since = time.perf_counter()

    def _new_scalars(self, outputs: dict[str, Any]) -> dict[str, Any]:
        scalars = {
            "total_loss" if name == "loss" else name: value.detach().as_subclass(torch.Tensor)
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor) and value.numel() == 1
        }
        if isinstance(outputs.get("log_vars"), dict):
            scalars.update({k: v for k, v in outputs["log_vars"].items() if k != "loss"})
        scalars.update(self.logged_in_step())
        old, now = self.storage.histories(), self.storage.iter
        return {k: v for k, v in scalars.items() if k not in old or old[k].last_iteration() < now}

    def at_after_run(self) -> None:
        """Set the storage's iteration to the end of the run."""
        self.storage.iter = self.iter + self.first_iter

    def end(self) -> None:
        """Leave the storage."""
        self._entered_storages.close()
        super().end()

    def fail(self) -> None:
        """Call ``after_train`` at the failed iteration."""
        self.at_after_run()
        self.storage.bring_forward()
        super().fail()


def open_storage(trainer: L.Trainer, dialect: Dialect) -> None:
    """Open a storage for models that store scalars outside of a run, where no hook reads them.

    So a model can be evaluated in the sanity check, in ``Trainer.validate`` and in
    ``Trainer.test``. In a run the run's own storage is the innermost.
    """
    facade: Any = dialect.facade
    storage = facade.storage_class()
    hooks = Driver.of(trainer).roster.hooks
    hosted = [hook for hook in hooks if getattr(hook, "dialect", None) is dialect]
    fit = Driver.of(trainer).fit
    fit.enter_context(storage)
    fit.enter_context(events.in_library(storage, _library_of(dialect, hosted)))


def _library_of(dialect: Dialect, hosted_hooks: Iterable[Any]) -> list[ModuleType]:
    """Return the loaded modules of the dialect's library that have a storage."""
    hooks = [hosted.foreign_hook for hosted in hosted_hooks]
    return events.library_modules(dialect.packages, hooks)


def no_arguments(facade: Any, point: str, method: Any) -> Arguments:
    """Return no arguments: hooks of detectron2 and cvpods read ``self.trainer``."""
    return (), {}


def step_dialect(name: str, facade: type[StepFacade], **options: Any) -> Dialect:
    """Return a dialect with the four points of a loop of steps.

    Args:
        name: Name of the dialect.
        facade: Class of the trainer passed to hooks.
        options: Further arguments of ``Dialect``.
    """
    defaults = {"arguments": no_arguments, "base": "HookBase"}
    return Dialect(
        name=name,
        points={
            "before_run": ("before_train",),
            "before_train_epoch": (),
            "before_train_iter": ("before_step",),
            "after_train_iter": ("after_step",),
            "after_val_epoch": (),
            "after_run": ("after_train",),
        },
        facade=facade,
        facade_points=("before_train_iter", *LOADS_AFTER),
        on_error=("after_train",),
        at_setup=open_storage,
        **{**defaults, **options},
    )
