"""``StepFacade``: a run as detectron2 and its relatives see it, with a storage of its scalars.

``RankMeans``: the means of a step's scalars over the ranks, as detectron2 stores them.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.hosting import Hosted
from lightning_hooks.dialects.steps.storage import EventStorage
from lightning_hooks.engine.lightning_api import logged_values

__all__ = ["POINTS", "RankMeans", "StepFacade", "TrainerFacade"]

POINTS = {
    "before_run": ("before_train",),
    "before_train_iter": ("before_step",),
    "after_train_iter": ("after_step",),
    "after_run": ("after_train",),
}
"""The four points of detectron2's relatives at mmcv's."""


class StepFacade(Facade):
    """The trainer of a loop of steps.

    After each step its storage is given:

    ==============  ========================================================================
    name            value
    ==============  ========================================================================
    ``total_loss``  the step's loss
    others          the step's ``log_vars``, the other scalar tensors that it returned, and what
                    the module logged with ``self.log(on_step=True)``
    ``data_time``   seconds from the end of the step before to the beginning of this one
    ==============  ========================================================================

    What a step returns is stored as its mean over the ranks, where each of them has a hook of the
    dialect; what it logged as this rank has it.
    A scalar that the module itself has put into the storage in this step stays as it is.
    """

    storage_class: type[EventStorage]
    first_iter = 0
    """The number of the first iteration in the storage."""

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.start_iter = runner.iter
        self.start_epoch = runner.epoch
        self.inner_iter = 0
        self.step_outputs: dict[str, Any] = {}
        self.storage = self.storage_class(self.start_iter + self.first_iter)
        self._seen: dict[str, torch.Tensor] = {}
        self._means = RankMeans(self.device)
        self._ready_for_data: float | None = None

    @property
    def max_iter(self) -> Any:
        """Iterations to do, None where nobody knows; what is assigned is told to all hooks."""
        return self._runner.max_iters

    @max_iter.setter
    def max_iter(self, value: int) -> None:
        self._runner._max_iters = value

    @property
    def max_epoch(self) -> Any:
        """Epochs to do, None where the run is counted in iterations."""
        return self._runner.max_epochs

    @property
    def data_loader(self) -> Any:
        """The loader that is iterated."""
        return self._runner.data_loader

    @property
    def scheduler(self) -> Any:
        """The Trainer's learning rate scheduler; Lightning steps it."""
        configs = self._runner.trainer.lr_scheduler_configs
        if not configs:
            raise AttributeError("the Trainer has no scheduler; give one to LRScheduler(...)")
        return configs[0].scheduler

    # -- on the way ------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the storage, and let the hooks have the trainer."""
        super().begin()
        self.storage.__enter__()

    def at_before_train_iter(self) -> None:
        """Move the storage on to this iteration."""
        self.storage.iter = self.iter + self.first_iter
        if self._ready_for_data is not None:
            self.storage.feed({"data_time": time.perf_counter() - self._ready_for_data})

    def at_after_train_iter(self) -> None:
        """Put what the step gave into the storage."""
        self.storage.iter = self.iter + self.first_iter
        outputs = dict(getattr(self._runner, "outputs", None) or {})
        self.inner_iter += 1
        self.step_outputs = outputs
        if "loss" in outputs:
            self.step_outputs = {**outputs, "loss_for_backward": outputs["loss"]}
        self.storage.feed(self._new_scalars(outputs))

    def leave(self, point: str) -> None:
        """Note when the Trainer could go and fetch data."""
        if point == "after_train_iter":
            self._ready_for_data = time.perf_counter()

    def _new_scalars(self, outputs: dict[str, Any]) -> dict[str, Any]:
        found = {
            "total_loss" if name == "loss" else name: value.detach().as_subclass(torch.Tensor)
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor) and value.numel() == 1
        }
        if isinstance(outputs.get("log_vars"), dict):
            log_vars = {k: v for k, v in outputs["log_vars"].items() if k != "loss"}
            found.update(log_vars)
        if self._dialect.name in self._runner.common_dialects:
            found = self._means(found)
        found.update(logged_values.step_metrics(self._runner.trainer, self._seen))
        known, now = self.storage.histories(), self.storage.iter
        return {k: v for k, v in found.items() if k not in known or known[k].last_iteration() < now}

    def at_after_run(self) -> None:
        """Move the storage on to the end."""
        self.storage.iter = self.iter + self.first_iter

    def end(self) -> None:
        """Close the storage."""
        if not self.ended:
            self.storage.__exit__()
        super().end()

    def fail(self) -> None:
        """Call ``after_train`` at the iteration that failed."""
        if not self.ended:
            self.at_after_run()
        super().fail()


class TrainerFacade(StepFacade):
    """A trainer that its hooks find as ``self.trainer``."""

    library: str = ""
    """The library's module of storages: where it is loaded, its own hooks and writers ask there."""

    def begin(self) -> None:
        """Put the storage into the library's hands too, where it is."""
        super().begin()
        self._library_stack().append(self.storage)

    def take_in(self, hosted: Hosted) -> None:
        """Give the hook the trainer: weakly, as its library does."""
        super().take_in(hosted)
        hosted.foreign_hook.trainer = weakref.proxy(self)

    def end(self) -> None:
        """Take the storage out of the library's hands."""
        stack = self._library_stack()
        stack[:] = [storage for storage in stack if storage is not self.storage]
        super().end()

    def _library_stack(self) -> list[Any]:
        stack = getattr(sys.modules.get(self.library), "_CURRENT_STORAGE_STACK", None)
        return stack if isinstance(stack, list) else []


class RankMeans:
    """Replaces a step's scalars by their means over all ranks; nothing is read from the device.

    The ranks agree on the names in the first step: those that any of them has. A rank that lacks
    one in a step does not count for its mean there. Names that come up later stay each rank's own.

    Args:
        device: Where the ranks talk.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._names: list[str] | None = None

    @torch.no_grad()
    def __call__(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalars, with means where there are several ranks."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return dict(scalars)
        if self._names is None:
            self._names = _names_of_all(scalars)
        wide = torch.float32 if self._device.type == "mps" else torch.float64
        rows = torch.zeros(2, len(self._names), dtype=wide, device=self._device)  # sums, counts
        for column, name in enumerate(self._names):
            if name in scalars:
                rows[0, column] = scalars[name]
                rows[1, column] = 1
        dist.all_reduce(rows)
        means = dict(zip(self._names, (rows[0] / rows[1]).unbind(), strict=True))
        return {name: means.get(name, value) for name, value in scalars.items()}


def _names_of_all(scalars: Mapping[str, Any]) -> list[str]:
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, list(scalars))
    return list(dict.fromkeys(name for some in names for name in some))
