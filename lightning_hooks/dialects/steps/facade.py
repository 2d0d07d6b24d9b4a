"""``StepFacade``: a run as hooks of detectron2, cvpods and Pet see it, with its event storage."""

from __future__ import annotations

import time
import weakref
from typing import Any

import torch

from lightning_hooks.dialects.detect import EPOCH_POINTS
from lightning_hooks.dialects.dialect import Dialect, no_arguments
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.hosting import Hosted
from lightning_hooks.dialects.steps.storage import EventStorage, library
from lightning_hooks.dialects.steps.storage.rank_means import RankMeans
from lightning_hooks.engine.lightning_api import logged_values

__all__ = ["StepFacade", "TrainerFacade", "step_dialect"]


class StepFacade(Facade):
    """The trainer of a loop of steps.

    After each step its storage gets:

    ==============  ========================================================================
    name            value
    ==============  ========================================================================
    ``total_loss``  the step's loss
    others          the step's ``log_vars``, the other scalar tensors that it returned, and what
                    the module logged with ``self.log(on_step=True)``
    ``data_time``   seconds from the end of the step before to the beginning of this one
    ==============  ========================================================================

    The values that a step returns are averaged over the ranks if each of them has a hook of the
    dialect; logged values are those of this rank. A scalar that the module itself has put into the
    storage in this step is not changed.
    """

    storage_class: type[EventStorage]
    first_iter = 0
    """Number of the first iteration in the storage."""

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.start_iter = runner.iter
        self.start_epoch = runner.epoch
        self.inner_iter = 0
        self.step_outputs: dict[str, Any] = {}
        self._library = library.storage_modules(
            self.packages, [hosted.foreign_hook for hosted in self.hosted_hooks()]
        )
        self.storage = self.new_storage(self.start_iter + self.first_iter)
        self._seen: dict[str, torch.Tensor] = {}
        self._rank_means = RankMeans(self.device)
        self._batch_ended: float | None = None

    @property
    def max_iter(self) -> Any:
        """Number of iterations of the run, if it is known; it can be assigned."""
        return self._runner.max_iters

    @max_iter.setter
    def max_iter(self, value: int) -> None:
        self._runner._max_iters = value

    @property
    def max_epoch(self) -> Any:
        """Number of epochs of the run; None if it is counted in iterations."""
        return self._runner.max_epochs

    @property
    def data_loader(self) -> Any:
        """The training loader."""
        return self._runner.data_loader

    @property
    def scheduler(self) -> Any:
        """The Trainer's learning rate scheduler; Lightning steps it."""
        configs = self._runner.trainer.lr_scheduler_configs
        if not configs:
            raise AttributeError("the Trainer has no scheduler; give one to LRScheduler(...)")
        return configs[0].scheduler

    # -- events ----------------------------------------------------------------------------

    def new_storage(self, start_iter: int) -> EventStorage:
        """Make the storage of the run."""
        return self.storage_class(start_iter)

    def begin(self) -> None:
        """Attach the hooks, and enter the storage, also in the library if it is loaded."""
        super().begin()
        for hosted in self.hosted_hooks():
            for point in filter(hosted.implements, EPOCH_POINTS):
                self._runner.logger.warning(
                    "%s.%s() is called at no point: a loop of steps, as %s has it, has no epochs; "
                    "write what it does in after_step, where an epoch ends",
                    *(type(hosted.foreign_hook).__name__, point, self._dialect.name),
                )
        self.storage.__enter__()
        library.enter(self.storage, self._library)

    def enter_point(self, point: str) -> None:
        """Make the storage the innermost one, for writers."""
        super().enter_point(point)
        self.storage.bring_forward()

    def at_before_train_iter(self) -> None:
        """Set the storage's iteration, and store the time of loading."""
        self.storage.iter = self.iter + self.first_iter
        if self._batch_ended is not None:
            self.storage.feed({"data_time": time.perf_counter() - self._batch_ended})

    def at_after_train_iter(self) -> None:
        """Store the results of the step, at the iteration that it began with."""
        outputs = dict(getattr(self._runner, "outputs", None) or {})
        self.inner_iter += 1
        self.step_outputs = outputs
        if "loss" in outputs:
            loss = outputs["loss"]
            if self._runner.hooks_step:
                loss = loss.clone()  # hooks divide it in place; what is logged stays
            self.step_outputs = {**outputs, "loss_for_backward": loss}
        self.storage.feed(self._new_scalars(outputs))

    def after_call(self, point: str) -> None:
        """Note the time: the Trainer loads the next batch from now on."""
        if point == "after_train_iter":
            self._batch_ended = time.perf_counter()

    def _new_scalars(self, outputs: dict[str, Any]) -> dict[str, Any]:
        scalars = {
            "total_loss" if name == "loss" else name: value.detach().as_subclass(torch.Tensor)
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor) and value.numel() == 1
        }
        if isinstance(outputs.get("log_vars"), dict):
            scalars.update({k: v for k, v in outputs["log_vars"].items() if k != "loss"})
        if self._dialect.name in self._runner.common_dialects:
            scalars = self._rank_means(scalars)
        scalars.update(logged_values.step_metrics(self._runner.trainer, self._seen))
        old, now = self.storage.histories(), self.storage.iter
        return {k: v for k, v in scalars.items() if k not in old or old[k].last_iteration() < now}

    def at_after_run(self) -> None:
        """Set the storage's iteration to the end of the run."""
        self.storage.iter = self.iter + self.first_iter

    def end(self) -> None:
        """Leave the storage."""
        if not self.ended:
            self.storage.__exit__()
        library.leave(self.storage, self._library)
        super().end()

    def fail(self) -> None:
        """Call ``after_train`` at the iteration that failed."""
        if not self.ended:
            self.at_after_run()
            self.storage.bring_forward()
        super().fail()


class TrainerFacade(StepFacade):
    """The trainer that hooks of detectron2 and cvpods have as ``self.trainer``."""

    def attach(self, hosted: Hosted) -> None:
        """Set the hook's ``trainer``, to a weak reference as in its library."""
        super().attach(hosted)
        hosted.foreign_hook.trainer = weakref.proxy(self)


def step_dialect(name: str, facade: type[StepFacade], **options: Any) -> Dialect:
    """Return a dialect with the four points of a loop of steps.

    Args:
        name: Name of the dialect.
        facade: Class of the object that hooks get in place of the runner.
        options: Further arguments of the dialect.
    """
    defaults = {"arguments": no_arguments, "base": "HookBase"}
    return Dialect(
        name=name,
        points={
            "before_run": ("before_train",),
            "before_train_iter": ("before_step",),
            "after_train_iter": ("after_step",),
            "after_run": ("after_train",),
        },
        facade=facade,
        facade_points=("before_train_iter", "after_train_iter"),
        on_error=("after_train",),
        **{**defaults, **options},
    )
