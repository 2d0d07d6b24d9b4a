"""Hooks, storage and writers of detectron2, importable without detectron2.

The loop, with the points of a hook, called without arguments; ``self.trainer`` is set::

    hook.before_train()
    for iter in range(start_iter, max_iter):
        hook.before_step()
        losses.backward()  # in trainer.run_step()
        hook.after_backward()
        optimizer.step()
        hook.after_step()
    iter += 1
    hook.after_train()  # also when the loop has raised

A hook's ``state_dict()`` is saved in every Lightning checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.steps import events, trainer_facade
from lightning_hooks.dialects.steps import hooks as step_hooks
from lightning_hooks.dialects.steps.events import (
    EventWriter,
    HistoryBuffer,
    JSONWriter,
    TensorboardXWriter,
    VisdomWriter,
)
from lightning_hooks.dialects.steps.hooks import Checkpointer, is_due, of_dialect
from lightning_hooks.dialects.steps.trainer_facade import step_dialect
from lightning_hooks.engine.lightning_api import data
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_int

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
    "TorchMemoryStats",
    "TorchProfiler",
    "VisdomWriter",
    "get_event_storage",
    "has_event_storage",
    "hooks",
]


class EventStorage(events.EventStorage):
    """The scalars, images and histograms of a run; readings return values with iterations."""

    with_iterations = True
    _latest_scalars = property(events.EventStorage.latest)
    """``latest()`` under a private name of detectron2, read by projects."""

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of values in the last ``window_size`` iterations of a scalar."""
        history = self.history(name)
        return history.count_since(history.last_iteration() - window_size)


get_event_storage = EventStorage.innermost
has_event_storage = EventStorage.is_entered


class CommonMetricPrinter(events.CommonMetricPrinter):
    """Logs remaining time, iteration, losses, metrics, times, learning rate and memory in one line.

    A scalar with ``loss`` or ``[metric]`` in the name is shown as the median of a window.

    Args:
        max_iter: Number of iterations of the run; without ``max_iter`` no remaining time is shown.
        window_size: Number of iterations in the window.
    """

    def line(self, storage: events.EventStorage) -> str:
        """Return the line of the current iteration, with detectron2's spaces."""
        start = "  ".join([*self._eta(storage), f"iter: {storage.iter}"])
        losses, metrics = ("  ".join(self._medians(storage, p)) for p in ("loss", "[metric]"))
        times = "".join(
            f"{name}: {mean:.4f}  last_{name}: {last:.4f}  "
            for name, mean, last in self._times(storage, self._window_size)
        )
        memory = "".join(self._memory())
        return f" {start}  {losses}  {metrics}  {times} {self._rate(storage)}  {memory}"


hooks = sys.modules[__name__]
"""This module, as ``detectron2.engine.hooks``."""


class HookBase(step_hooks.HookBase):
    """The base of detectron2's hooks: override any of the points.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    hook_dialect = "detectron2"

    def after_backward(self) -> None:
        """After each backward pass, before the optimizer's step."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for ``load_state_dict`` in a resumed run; an empty dict is not saved."""
        return {}


IterationTimer = of_dialect(HookBase, step_hooks.IterationTimer)
PeriodicWriter = of_dialect(HookBase, step_hooks.PeriodicWriter)
PeriodicCheckpointer = of_dialect(HookBase, step_hooks.PeriodicCheckpointer)
BestCheckpointer = of_dialect(HookBase, step_hooks.BestCheckpointer)
LRScheduler = of_dialect(HookBase, step_hooks.LRScheduler)
AutogradProfiler = of_dialect(HookBase, step_hooks.AutogradProfiler)
PreciseBN = of_dialect(HookBase, step_hooks.PreciseBN)
TorchProfiler = of_dialect(HookBase, step_hooks.TorchProfiler)
CallbackHook = of_dialect(HookBase, step_hooks.CallbackHook)


class EvalHook(step_hooks.EvalHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: Function without arguments; returns a dict of numbers, or nothing.
        eval_after_train: Whether to evaluate after the last iteration.
    """

    def __init__(
        self, eval_period: int, eval_function: Callable[[], Any], eval_after_train: bool = True
    ) -> None:
        super().__init__(eval_period, eval_function)
        self._eval_after_train = eval_after_train

    def after_train(self) -> None:
        """Evaluate the result of a complete run."""
        if self._eval_after_train:
            super().after_train()


_MIB = 2**20


class TorchMemoryStats(HookBase):
    """Logs the memory of the GPU at the end of the first periods; without a GPU, nothing.

    Args:
        period: Number of iterations between two lines.
        max_runs: Number of lines of a run; torch's memory summary follows the last line.
    """

    def __init__(self, period: int = 20, max_runs: int = 10) -> None:
        check_int("period", period, 1)
        check_int("max_runs", max_runs, 0)
        self._period = period
        self._max_runs = max_runs
        self._runs = 0

    def after_step(self) -> None:
        """Log the memory if the iteration ends a period or the run."""
        trainer = self.trainer
        if self._runs >= self._max_runs or not is_due(trainer.iter, self._period, trainer.max_iter):
            return
        if not torch.cuda.is_available():
            return
        self._runs += 1
        trainer.logger.info(
            " iter: %s  max_reserved_mem: %.0fMB  reserved_mem: %.0fMB  "
            "max_allocated_mem: %.0fMB  allocated_mem: %.0fMB ",
            trainer.iter,
            torch.cuda.max_memory_reserved() / _MIB,
            torch.cuda.memory_reserved() / _MIB,
            torch.cuda.max_memory_allocated() / _MIB,
            torch.cuda.memory_allocated() / _MIB,
        )
        if self._runs == self._max_runs:
            trainer.logger.info("\n%s", torch.cuda.memory_summary())
        torch.cuda.reset_peak_memory_stats()


class TrainerFacade(trainer_facade.TrainerFacade):
    """``self.trainer`` of detectron2's hooks.

    The storage also has ``rank_data_time``, the ``data_time`` of this rank.

    ``reset_data_loader()``, or an iterator assigned to ``_data_loader_iter_obj``, replaces the
    training data from the next step on. The lengths of the run and of an epoch stay.

    Note:
        Departures from detectron2: until replaced, ``_data_loader_iter`` is a second iterator over
        the training loader, independent of the Trainer's batches. In ``before_step`` Lightning has
        loaded the batch already, so the data cannot be replaced there.
    """

    storage_class = EventStorage

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        self._assigned = 0  # difference of an assigned `iter` from the run's
        self._loader: Any = None  # an assigned data loader
        self._batches: Iterator[Any] | None = None
        super().__init__(runner, dialect)

    @property
    def iter(self) -> int:
        """Number of finished iterations; an assigned number holds until the next iteration."""
        return int(super().iter + self._assigned)

    @iter.setter
    def iter(self, value: int) -> None:
        self._assigned = int(value) - super().iter

    def at_before_train_iter(self) -> None:
        """Drop an assigned iteration, as detectron2's loop does."""
        self._assigned = 0
        super().at_before_train_iter()
        time = self.storage.histories().get("data_time")
        if time is not None and time.last_iteration() == self.storage.iter:
            self.storage.feed({"rank_data_time": time.latest()})

    _trainer = property(lambda self: self)
    """This trainer, for hooks written for a ``DefaultTrainer``."""

    @property
    def data_loader(self) -> Any:
        """The training loader; an assigned loader needs ``_data_loader_iter_obj = None`` too."""
        return super().data_loader if self._loader is None else self._loader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self._loader = value

    @property
    def _data_loader_iter_obj(self) -> Any:
        """An iterator over the training loader, or the assigned iterator."""
        if self._batches is None:
            self._batches = iter(self.data_loader)
        return self._batches

    @_data_loader_iter_obj.setter
    def _data_loader_iter_obj(self, value: Any) -> None:
        """Train on the iterator's batches from the next step on; None: on ``data_loader`` anew."""
        runner, point = self.native_runner, self._entered[0] if self._entered else "before_run"
        if point == "before_train_iter":
            raise RuntimeError(
                "the training data cannot be replaced in before_step, since Lightning has loaded "
                "the batch of this step: write the code in after_step of the step before"
            )
        self._loader = self.data_loader
        self._batches = iter(self._loader) if value is None else value
        batches = _Batches(self._batches, runner.trainer.num_training_batches)
        if point == "before_run":
            runner.new_data_loader = runner.loader_of_run = batches
        else:
            data.switch_loader(runner.trainer, batches)

    _data_loader_iter = property(attrgetter("_data_loader_iter_obj"))

    def reset_data_loader(self, data_loader_builder: Callable[[], Any]) -> None:
        """Train on the loader returned by a function, from the next step on."""
        self.data_loader = data_loader_builder()
        self._data_loader_iter_obj = None


class _Batches:
    """The batches of an iterator, as a loader.

    Args:
        iterator: The iterator; each epoch continues after the last.
        length: Number of batches of an epoch, infinity if unknown.
    """

    def __init__(self, iterator: Iterator[Any], length: float) -> None:
        self._iterator, self._length = iterator, length

    def __len__(self) -> int:
        if self._length == float("inf"):
            raise TypeError("the number of batches of an epoch is unknown")
        return int(self._length)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterator:  # noqa: UP028  # yield from closes a generator after an epoch
            yield batch
        raise RuntimeError(
            "the loader assigned by a hook has ended before the run; detectron2's loaders have no "
            "end"
        )


DIALECT = step_dialect("detectron2", TrainerFacade, further=("after_backward",))

DetectionCheckpointer = Checkpointer
