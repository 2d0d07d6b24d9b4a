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

import datetime
import functools
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from lightning_hooks.dialects import events
from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.events import (
    EventWriter,
    HistoryBuffer,
    JSONWriter,
    TensorboardXWriter,
    VisdomWriter,
)
from lightning_hooks.dialects.step_loop import StepFacade, step_dialect
from lightning_hooks.engine.lightning_api import data
from lightning_hooks.engine.runner.mmcv_checkpoint import load_weights, weights_of
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats
from lightning_hooks.hooks.profiling.profiler import refuse_another
from lightning_hooks.storage import files, torch_files
from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.utils.arguments import check_int, shown
from lightning_hooks.utils.ranks import is_distributed

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


class HookBase:
    """The base of detectron2's hooks: override any of the points.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    hook_dialect = "detectron2"
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
        """After each iteration; ``trainer.iter`` is the iteration's number, from 0."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for ``load_state_dict`` in a resumed run; an empty dict is not saved."""
        return {}


def is_due(iteration: int, period: int, max_iter: int | None) -> bool:
    """Return whether an iteration ends a period, or is the last one.

    Args:
        iteration: Number of the iteration, from 0.
        period: Number of iterations; 0 for the last one only.
        max_iter: Number of iterations of the run; None if unknown.

    >>> [is_due(i, 3, 5) for i in range(5)], is_due(4, 0, 5)
    ([False, False, True, False, True], True)
    """
    ends_period = period > 0 and (iteration + 1) % period == 0
    return ends_period or (max_iter is not None and iteration == max_iter - 1)


def is_first_rank() -> bool:
    """Return whether this process is rank 0."""
    return not is_distributed() or torch.distributed.get_rank() == 0


def flatten(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested dict under keys joined by slashes.

    >>> dict(flatten({"bbox": {"AP": 0.5, "AP50": 0.7}, "speed": 2.0}))
    {'bbox/AP': 0.5, 'bbox/AP50': 0.7, 'speed': 2.0}
    """
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def check_writers(writers: Sequence[Any]) -> list[Any]:
    """Return the writers as a list.

    Raises:
        TypeError: for a writer without ``write()``.
    """
    for writer in writers:
        if not callable(getattr(writer, "write", None)):
            raise TypeError(f"writers must be EventWriters, got {shown(writer)}")
    return list(writers)


class PeriodicWriter(HookBase):
    """Calls writers every period, after the last iteration and after the run.

    Args:
        writers: Objects with ``write()`` and ``close()``; only rank 0 uses them.
        period: Number of iterations between two writes.
    """

    writes_first = False
    """Whether the writers are called after the first iteration too, as in cvpods."""
    writes_after_train = True
    """Whether the writers are called after the run too, as in detectron2."""

    def __init__(self, writers: Sequence[Any], period: int = 20) -> None:
        self._writers = check_writers(writers)
        check_int("period", period, 1)
        self._period = period

    def after_step(self) -> None:
        """Write if the iteration ends a period."""
        done, trainer = self.trainer.iter, self.trainer
        if trainer.rank != 0:
            return
        if is_due(done, self._period, trainer.max_iter) or (self.writes_first and done == 0):
            for writer in self._writers:
                writer.write()

    def after_train(self) -> None:
        """Write the last values of other hooks, and close the writers."""
        for writer in self._writers if self.trainer.rank == 0 else ():
            if self.writes_after_train:
                writer.write()
            writer.close()


class _AtPeriods(HookBase):
    """Acts every period and at the end of a complete run.

    Args:
        eval_period: Number of iterations between two acts; 0: only at the end.
    """

    def __init__(self, eval_period: int) -> None:
        check_int("eval_period", eval_period, 0)
        self._period = eval_period

    def after_step(self) -> None:
        """Act if the iteration ends a period, unless it ends the run too."""
        done, max_iter = self.trainer.iter, self.trainer.max_iter
        if is_due(done, self._period, None) and done + 1 != max_iter:
            self._act()

    def after_train(self) -> None:
        """Act at the end of a complete run."""
        max_iter = self.trainer.max_iter
        if max_iter is None or self.trainer.iter + 1 >= max_iter:
            self._act()

    def _act(self) -> None:
        raise NotImplementedError


class EvalHook(_AtPeriods):
    """Calls an evaluation every period and after the last iteration; stores its results.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: Function without arguments; returns a dict of numbers or nothing. The keys
            of nested dicts are joined by slashes.
        eval_after_train: Whether to evaluate after the last iteration.

    Raises:
        TypeError: at an evaluation with another result than a dict.
        ValueError: at an evaluation with a value that is not a number.

    Note:
        Departure from detectron2: the hook keeps the function after a run, for a further run.
    """

    def __init__(
        self, eval_period: int, eval_function: Callable[[], Any], eval_after_train: bool = True
    ) -> None:
        if not callable(eval_function):
            raise TypeError(f"eval_function must be a function, got {shown(eval_function)}")
        super().__init__(eval_period)
        self._function, self._eval_after_train = eval_function, eval_after_train

    def after_train(self) -> None:
        """Evaluate the result of a complete run."""
        if self._eval_after_train:
            super().after_train()

    def _act(self) -> None:
        results = self._function()
        if not results:
            return
        if not isinstance(results, Mapping):
            raise TypeError(f"eval_function must return a dict of numbers, got {shown(results)}")
        numbers = {name: _as_float(name, value) for name, value in flatten(results)}
        self.trainer.storage.put_scalars(**numbers, smoothing_hint=False)


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"eval_function must return numbers, got {name}={shown(value)}") from error


class CallbackHook(HookBase):
    """Calls a function of the trainer at each point.

    Args:
        before_train: Called before the first iteration.
        after_train: Called after the last iteration, also when training has raised.
        before_step: Called before each iteration.
        after_step: Called after each iteration.
    """

    def __init__(
        self,
        *,
        before_train: Callable[[Any], Any] | None = None,
        after_train: Callable[[Any], Any] | None = None,
        before_step: Callable[[Any], Any] | None = None,
        after_step: Callable[[Any], Any] | None = None,
    ) -> None:
        self._before_train = before_train or _do_nothing
        self._after_train = after_train or _do_nothing
        self._before_step = before_step or _do_nothing
        self._after_step = after_step or _do_nothing

    def before_train(self) -> None:
        """Call the function for this point."""
        self._before_train(self.trainer)

    def after_train(self) -> None:
        """Call the function for this point."""
        self._after_train(self.trainer)

    def before_step(self) -> None:
        """Call the function for this point."""
        self._before_step(self.trainer)

    def after_step(self) -> None:
        """Call the function for this point."""
        self._after_step(self.trainer)


def _do_nothing(trainer: Any) -> None:
    pass


class TorchProfiler(HookBase):
    """Profiles selected iterations with ``torch.profiler``, each into a file.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles the step.
        output_dir: Directory of the files: ``profiler-trace-iter{iteration}.json`` for Chrome's
            tracing page, or ``log/*.pt.trace.json`` for TensorBoard. On a GPU the slowest
            operations are listed in ``profiler-summary-iter{iteration}.txt``. Rank 0 alone writes
            them, and each rank writes for TensorBoard.
        activities: Profiled activities; by default the CPU, and the GPU if available.
        save_tensorboard: Whether the files are for TensorBoard.

    Raises:
        RuntimeError: at a profiled step, if another of torch's profilers is running.
    """

    def __init__(
        self,
        enable_predicate: Callable[[Any], bool],
        output_dir: str,
        *,
        activities: Sequence[Any] | None = None,
        save_tensorboard: bool = True,
    ) -> None:
        self._is_enabled = enable_predicate
        self._output_dir = os.fspath(output_dir)
        self._activities = activities
        self._save_tensorboard = save_tensorboard
        self._profiler: Any = None

    def before_step(self) -> None:
        """Start a profiler if ``enable_predicate`` selects this step; not in a fast_dev_run."""
        if self._is_enabled(self.trainer) and self.trainer.native_runner.may_write:
            refuse_another(self.trainer.native_runner.trainer)
            self._profiler = self._make_profiler()
            self._profiler.__enter__()

    def after_step(self) -> None:
        """Stop the profiler, and write the files."""
        profiler = self._stop()
        if profiler is not None and self.trainer.is_writer:
            os.makedirs(self._output_dir, exist_ok=True)
            self._write(profiler)

    def after_train(self) -> None:
        """Stop the profiler of a failed step."""
        self._stop()

    def _make_profiler(self) -> Any:
        on_trace_ready = None
        if self._save_tensorboard:
            on_trace_ready = torch.profiler.tensorboard_trace_handler(
                self._path("log"), worker_name=f"profiler-tensorboard-iter{self.trainer.iter}"
            )
        return torch.profiler.profile(
            activities=self._activities,
            on_trace_ready=on_trace_ready,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
            with_flops=True,
        )

    def _write(self, profiler: Any) -> None:
        if not self._save_tensorboard:
            profiler.export_chrome_trace(self._path("profiler-trace-iter{}.json"))
        if torch.cuda.is_available():
            table = profiler.key_averages().table(sort_by="cuda_time_total")
            with open(self._path("profiler-summary-iter{}.txt"), "w", encoding="utf-8") as file:
                file.write(table)

    def _path(self, name: str) -> str:
        return os.path.join(self._output_dir, name.format(self.trainer.iter))

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.__exit__(None, None, None)
        return profiler


class AutogradProfiler(TorchProfiler):
    """Profiles selected iterations, each into a file for Chrome's tracing page.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles the step.
        output_dir: Directory of the files ``profiler-trace-iter{iteration}.json``.
        use_cuda: Whether the GPU is profiled too.
    """

    def __init__(
        self, enable_predicate: Callable[[Any], bool], output_dir: str, *, use_cuda: bool = True
    ) -> None:
        super().__init__(enable_predicate, output_dir)
        self._use_cuda = use_cuda

    def _make_profiler(self) -> Any:
        device = "cuda" if self._use_cuda and torch.cuda.is_available() else None
        return torch.autograd.profiler.profile(use_device=device)

    def _write(self, profiler: Any) -> None:
        profiler.export_chrome_trace(self._path("profiler-trace-iter{}.json"))


def speed_lines(count: int, in_steps: float, total: float) -> Iterator[str]:
    """Yield detectron2's lines at the end of a run: the speed and the total time.

    Args:
        count: Number of timed iterations.
        in_steps: Seconds of these iterations, without hooks.
        total: Seconds of the run.

    >>> [*speed_lines(4, 8.0, 10.5)]  # doctest: +NORMALIZE_WHITESPACE
    ['Overall training speed: 4 iterations in 0:00:08 (2.0000 s / it)',
     'Total training time: 0:00:10 (0:00:02 on hooks)']
    """
    if count > 0 and in_steps > 0:
        speed = f"{count} iterations in {_clock(in_steps)} ({in_steps / count:.4f} s / it)"
        yield f"Overall training speed: {speed}"
    yield f"Total training time: {_clock(total)} ({_clock(total - in_steps)} on hooks)"


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=int(seconds)))


class IterationTimer(HookBase):
    """Stores each step's seconds as ``time``; logs speed and total time at the end.

    List the timer first: the time of the other hooks is then logged separately.

    Args:
        warmup_iter: Number of the first timed iteration, from 1.
    """

    def __init__(self, warmup_iter: int = 3) -> None:
        check_int("warmup_iter", warmup_iter, 0)
        self._warmup_iter = warmup_iter

    def before_train(self) -> None:
        """Start the timer of the run."""
        self._began = self._step_began = time.perf_counter()
        self._in_steps = 0.0
        self._done = 0

    def before_step(self) -> None:
        """Start the timer of the step."""
        self._step_began = time.perf_counter()

    def after_step(self) -> None:
        """Store the seconds of the step."""
        now = time.perf_counter()
        self._done += 1
        if self._done < self._warmup_iter:
            self._began = now
            return
        self._in_steps += now - self._step_began
        self.trainer.storage.put_scalars(time=now - self._step_began)

    def after_train(self) -> None:
        """Log speed and total time."""
        counted = self._done - max(self._warmup_iter - 1, 0)
        total = time.perf_counter() - self._began
        for line in speed_lines(counted, self._in_steps, total):
            self.trainer.logger.info(line)


def reported_group(optimizer: torch.optim.Optimizer) -> int:
    """Return the index of the parameter group for the ``lr`` scalar.

    The result is the first group with the most parameters; if each group has a single parameter,
    the first group with the most common learning rate.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if max(sizes) > 1:
        return sizes.index(max(sizes))
    rates = [group["lr"] for group in optimizer.param_groups]
    return rates.index(Counter(rates).most_common(1)[0][0])


class LRScheduler(HookBase):
    """Steps a learning rate scheduler after every iteration, and stores ``lr``.

    ``lr`` is the rate used in the iteration, of the group of :func:`reported_group`.

    Args:
        optimizer: The optimizer; by default the scheduler's, else the Trainer's first.
        scheduler: Scheduler of torch, or function from the run's progress in [0, 1] to a factor of
            the initial rate (as fvcore's ``ParamScheduler``). Without a scheduler the hook stores
            the rate of the Trainer's own scheduler, stepped by Lightning.

    Raises:
        TypeError: if ``scheduler`` is neither.
        ValueError: at the start of a run, if the Trainer does not train the optimizer.
    """

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        if not (scheduler is None or hasattr(scheduler, "step") or callable(scheduler)):
            raise TypeError(f"scheduler must have step() or be a function, got {shown(scheduler)}")
        own: Any = getattr(scheduler, "optimizer", None) if optimizer is None else optimizer
        self._own_optimizer = self._optimizer = own
        self._schedule = None if hasattr(scheduler, "step") else scheduler
        self._scheduler: Any = scheduler if self._schedule is None else None

    @property
    def scheduler(self) -> Any:
        """The scheduler."""
        return self.trainer.scheduler if self._scheduler is None else self._scheduler

    get_best_param_group_id = staticmethod(reported_group)

    def before_train(self) -> None:
        """Take the optimizer, and check that the Trainer trains it."""
        trained = self.trainer.optimizer
        optimizers = [*trained.values()] if isinstance(trained, Mapping) else [trained]
        self._optimizer = optimizers[0] if self._own_optimizer is None else self._own_optimizer
        if self._schedule is not None:
            if self.trainer.max_iter is None:
                raise ValueError("a schedule over the run's progress needs a run with a known end")
            factor = functools.partial(_factor, self._schedule, self.trainer.max_iter)
            self._scheduler = torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, factor, last_epoch=self.trainer.iter - 1
            )
        own = getattr(self._scheduler, "optimizer", self._optimizer)
        if not any(own.param_groups is other.param_groups for other in optimizers):
            raise ValueError(
                "LRScheduler's optimizer is not the one that is trained: "
                "let configure_optimizers() return this object"
            )
        self._group = reported_group(self._optimizer)

    def before_step(self) -> None:
        """Read the rate; at an epoch's end Lightning steps its scheduler before ``after_step``."""
        self._rate = self._optimizer.param_groups[self._group]["lr"]

    def after_step(self) -> None:
        """Store the rate of this iteration, then step the scheduler."""
        if self._scheduler is not None:
            self._rate = self._optimizer.param_groups[self._group]["lr"]
            self._scheduler.step()
        self.trainer.storage.put_scalar("lr", self._rate, smoothing_hint=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the hook's scheduler; Lightning saves the Trainer's scheduler."""
        if hasattr(self._scheduler, "state_dict"):
            return dict(self._scheduler.state_dict())
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler."""
        if hasattr(self._scheduler, "load_state_dict"):
            self._scheduler.load_state_dict(state_dict)


def _factor(schedule: Callable[[float], float], max_iter: int, iteration: int) -> float:
    return schedule(iteration / max_iter)


def endless(data_loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of a loader, and begin again after the last.

    Raises:
        ValueError: for a loader without a batch, also for an iterator that has ended.
    """
    has_batch = True
    while has_batch:
        has_batch = False
        for batch in data_loader:
            has_batch = True
            yield batch
    raise ValueError(
        f"PreciseBN's data_loader gives no batch (any more): {type(data_loader).__name__}; give a "
        "loader, or an iterator without an end"
    )


class PreciseBN(HookBase):
    """Sets the statistics of BatchNorm layers from many batches, every period and at the end.

    Args:
        period: Number of iterations between two updates; 0: only after the last iteration.
        model: The model.
        data_loader: Iterable of the model's inputs; each update continues after the last batch of
            the update before, and begins again at the loader's end.
        num_iter: Number of batches for each update.

    Raises:
        ValueError: at an update, for a loader without a batch or an iterator that has ended.

    See :func:`lightning_hooks.update_bn_stats` for the formula.

    Note:
        Departure from detectron2: a loader with an end is read again (detectron2 raises).
    """

    def __init__(
        self, period: int, model: torch.nn.Module, data_loader: Iterable[Any], num_iter: int
    ) -> None:
        check_int("period", period, 0)
        check_int("num_iter", num_iter, 1)
        self._period, self._model, self._num_iter = period, model, num_iter
        self._data_loader = data_loader
        self._data_iter: Iterator[Any] | None = None

    def after_step(self) -> None:
        """Update if the iteration ends a period."""
        if is_due(self.trainer.iter, self._period, self.trainer.max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now; scalars stored by the model meanwhile are dropped."""
        if bn_layers(self._model):
            if self._data_iter is None:
                self._data_iter = endless(self._data_loader)
            with type(self.trainer.storage)():
                update_bn_stats(self._model, self._data_iter, self._num_iter)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data_iter": None}


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

    def before_train(self) -> None:
        """Count the lines of a run from 0."""
        self._runs = 0

    def after_step(self) -> None:
        """Log the memory if the iteration ends a period or the run."""
        trainer = self.trainer
        if self._runs >= self._max_runs or not torch.cuda.is_available():
            return
        if not is_due(trainer.iter, self._period, trainer.max_iter):
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


_LAST = "last_checkpoint"


def saves_here(checkpointer: Any) -> bool:
    """Return whether a checkpointer saves in this process, which by default only rank 0 does."""
    saves = getattr(checkpointer, "save_to_disk", None)
    return is_first_rank() if saves is None else bool(saves)


class Checkpointer:
    """Saves a model and other objects to ``{save_dir}/{name}.pth``, and loads them.

    A file contains ``model``, the state of each of ``checkpointables`` by name, and the keywords of
    ``save``. ``last_checkpoint`` in the same directory names the newest file. A file replaces
    an older file only when complete.

    Args:
        model: The model; a wrapper such as DistributedDataParallel is removed.
        save_dir: Directory of the files; if empty, nothing is saved.
        save_to_disk: Whether this process saves; by default only rank 0 does.
        checkpointables: Objects with ``state_dict()`` and ``load_state_dict()``.

    Raises:
        TypeError: for a checkpointable without ``state_dict()``.

    Source: fvcore's ``Checkpointer``; the files are in its format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpointer = Checkpointer(torch.nn.Linear(1, 1), folder)
    ...     checkpointer.save("model_final", iteration=5)
    ...     checkpointer.resume_or_load("")
    {'iteration': 5}
    """

    def __init__(
        self,
        model: torch.nn.Module,
        save_dir: str = "",
        *,
        save_to_disk: bool | None = None,
        **checkpointables: Any,
    ) -> None:
        self.model = unwrap(model)
        self.save_dir = os.fspath(save_dir)
        self.save_to_disk = save_to_disk
        self.logger = logging.getLogger("lightning_hooks")
        self.checkpointables: dict[str, Any] = {}
        for key, checkpointable in checkpointables.items():
            self.add_checkpointable(key, checkpointable)

    def add_checkpointable(self, key: str, checkpointable: Any) -> None:
        """Add an object to save.

        Raises:
            KeyError: for a name already in use.
        """
        if key in self.checkpointables:
            raise KeyError(f"a checkpointable {key!r} exists already")
        if not callable(getattr(checkpointable, "state_dict", None)):
            raise TypeError(f"{key} must have state_dict(), got {shown(checkpointable)}")
        self.checkpointables[key] = checkpointable

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now, with ``kwargs`` as further entries of the file."""
        if not self.save_dir or not saves_here(self):
            return
        state: dict[str, Any] = {"model": torch_files.to_cpu(self.model.state_dict())}
        state.update({key: entry.state_dict() for key, entry in self.checkpointables.items()})
        torch_files.save_torch({**state, **kwargs}, files.join(self.save_dir, f"{name}.pth"))
        self.tag_last_checkpoint(f"{name}.pth")

    def load(self, path: str, checkpointables: Sequence[str] | None = None) -> dict[str, Any]:
        """Load a file into the model and the checkpointables; return its other entries.

        Weights that are missing, unexpected or of another shape are skipped and logged.

        Args:
            path: Path of a file with ``model`` or ``state_dict``, of a bare state dict, or of a
                ``.pkl`` of detectron2's model zoo; if empty, nothing is loaded.
            checkpointables: Names of the checkpointables to load; all by default.

        Raises:
            DamagedCheckpointError: for a damaged file.
            pickle.UnpicklingError: for a file with more than tensors, arrays and plain types.
        """
        if not path:
            return {}
        state = self._load_file(path)
        weights = state.pop("model")
        suffixes_match = state.pop("matching_heuristics", False)
        weights = {k: _as_tensor(value) for k, value in _without_prefix(weights, "module.").items()}
        if suffixes_match:
            weights = _by_suffix(weights, self.model.state_dict())
        load_weights(self.model, weights, path, self.logger)
        for key in self.checkpointables if checkpointables is None else checkpointables:
            if key in state:
                self.checkpointables[key].load_state_dict(state.pop(key))
        return state

    def _load_file(self, filename: str) -> dict[str, Any]:
        """Return the contents of a file, with the weights as ``model``; may be overridden."""
        is_pickle = filename.endswith(".pkl")
        state = torch_files.load_pickle(filename) if is_pickle else torch_files.load_torch(filename)
        if not isinstance(state, Mapping):
            kind = type(state).__name__
            raise DamagedCheckpointError(f"{filename} holds a {kind}, and no weights")
        weights = weights_of(state)
        is_bare = weights.keys() == state.keys()
        rest = {} if is_bare else {k: v for k, v in state.items() if k != "state_dict"}
        return {**rest, "model": weights}

    def resume_or_load(self, path: str, *, resume: bool = True) -> dict[str, Any]:
        """Load all objects from the newest file; if none exists, the weights of ``path``."""
        if resume and self.has_checkpoint():
            return self.load(self.get_checkpoint_file())
        return self.load(path, checkpointables=[])

    def has_checkpoint(self) -> bool:
        """Return whether the directory has a newest file."""
        return files.exists(files.join(self.save_dir, _LAST))

    def get_checkpoint_file(self) -> str:
        """Return the path of the newest file, or an empty string."""
        if not self.has_checkpoint():
            return ""
        system, path = files.filesystem(files.join(self.save_dir, _LAST))
        return files.join(self.save_dir, system.cat_file(path).decode().strip())

    def get_all_checkpoint_files(self) -> list[str]:
        """Return the paths of all files in the directory."""
        system, path = files.filesystem(self.save_dir)
        names = sorted(os.path.basename(file) for file in system.ls(path, detail=False))
        return [files.join(self.save_dir, name) for name in names if name.endswith(".pth")]

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Write the name of the newest file to ``last_checkpoint``."""
        files.write_bytes(files.join(self.save_dir, _LAST), last_filename_basename.encode())


def _without_prefix(weights: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return weights without a prefix of all names, as of a model in a wrapper."""
    has_prefix = all(name.startswith(prefix) for name in weights)
    return {name.removeprefix(prefix) if has_prefix else name: v for name, v in weights.items()}


def _as_tensor(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _by_suffix(weights: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """Return weights of a backbone under the names of a model with the backbone.

    Each name of the model gets the weight with the longest name at its end.

    >>> _by_suffix({"conv1.weight": 1, "fc.weight": 2}, ["stem.conv1.weight", "head.bias"])
    {'stem.conv1.weight': 1, 'fc.weight': 2}
    """
    matched: dict[str, Any] = {}
    unused = {*weights}
    for name in own:
        parts = name.split(".")
        suffixes = (".".join(parts[start:]) for start in range(len(parts)))
        match = next((suffix for suffix in suffixes if suffix in weights), None)
        if match is not None:
            matched[name] = weights[match]
            unused.discard(match)
    return {**matched, **{name: weights[name] for name in weights if name in unused}}


class PeriodicCheckpointer(HookBase):
    """Saves a checkpoint every period, and after the last iteration.

    The names are ``{file_prefix}_{iteration:07d}`` and ``{file_prefix}_final``; each file contains
    ``iteration``.

    Args:
        checkpointer: A :class:`~lightning_hooks.dialects.detectron2.Checkpointer`, or an
            object with ``save(name, **kwargs)``, and ``get_checkpoint_file()`` for
            ``max_to_keep``.
        period: Number of iterations between two files.
        max_iter: Number of iterations of the run; the Trainer's by default.
        max_to_keep: Number of files kept besides the final file; all by default.
        file_prefix: Prefix of the names.
    """

    def __init__(
        self,
        checkpointer: Any,
        period: int,
        max_iter: int | None = None,
        max_to_keep: int | None = None,
        file_prefix: str = "model",
    ) -> None:
        _check_checkpointer(checkpointer)
        check_int("period", period, 1)
        if max_to_keep is not None:
            check_int("max_to_keep", max_to_keep, 1)
        self.checkpointer = checkpointer
        self.period = period
        self.max_iter = max_iter
        self.max_to_keep = max_to_keep
        self.file_prefix = file_prefix
        self.recent_checkpoints: list[str] = []

    def before_train(self) -> None:
        """Read the number of iterations of the run."""
        self.max_iter = self.trainer.max_iter

    def after_step(self) -> None:
        """Save if the iteration ends a period or the run; nothing in a ``fast_dev_run``."""
        if self.trainer.native_runner.may_write:
            self.step(self.trainer.iter)

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Save if an iteration ends a period or the run; for loops without a Trainer.

        Args:
            iteration: Number of the finished iteration, from 0.
            kwargs: Further entries of the file.
        """
        extra = {"iteration": iteration, **kwargs}
        if (iteration + 1) % self.period == 0:
            self.checkpointer.save(self.name(iteration), **extra)
            # on other ranks the newest file may be another, or a file that is no longer
            if self.max_to_keep is not None and saves_here(self.checkpointer):
                self._remove_oldest(self.checkpointer.get_checkpoint_file(), self.max_to_keep)
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.checkpointer.save(f"{self.file_prefix}_final", **extra)

    def name(self, iteration: int) -> str:
        """Return the name of an iteration's file."""
        return f"{self.file_prefix}_{iteration:07d}"

    def _remove_oldest(self, newest: str, keep: int) -> None:
        self.recent_checkpoints.append(newest)
        while len(self.recent_checkpoints) > keep:
            oldest = self.recent_checkpoints.pop(0)
            if not oldest.endswith(f"{self.file_prefix}_final.pth"):
                files.remove(oldest)

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now."""
        self.checkpointer.save(name, **kwargs)


class BestCheckpointer(_AtPeriods):
    """Saves a checkpoint when a scalar of the storage reaches a new best value.

    The scalar is read every period and after the last iteration: list the hook after the
    ``EvalHook`` of the scalar, with the same period. The file contains ``iteration``.

    Infinite and NaN values are ignored. If the scalar is missing, a warning is logged.

    Args:
        eval_period: Number of iterations between two readings; 0: only at the end.
        checkpointer: Same as for ``PeriodicCheckpointer``.
        val_metric: Name of the scalar, as ``bbox/AP``.
        mode: ``max`` if the largest value is the best, ``min`` if the smallest.
        file_prefix: Name of the file.
    """

    def __init__(
        self,
        eval_period: int,
        checkpointer: Any,
        val_metric: str,
        mode: str = "max",
        file_prefix: str = "model_best",
    ) -> None:
        _check_checkpointer(checkpointer)
        if mode not in ("max", "min"):
            raise ValueError(f'mode must be "max" or "min", got {shown(mode)}')
        super().__init__(eval_period)
        self.checkpointer, self.val_metric, self.file_prefix = checkpointer, val_metric, file_prefix
        self._sign = 1 if mode == "max" else -1
        self.best_metric: float | None = None
        self.best_iter: int | None = None

    def before_train(self) -> None:
        """Forget the best value of an earlier run."""
        if self.trainer.iter == 0:
            self.best_metric = self.best_iter = None

    def _act(self) -> None:
        entry = self.trainer.storage.latest_values().get(self.val_metric)
        if entry is None:
            self.trainer.logger.warning(
                "%s: no scalar %r has been put; nothing is saved",
                *(type(self).__name__, self.val_metric),
            )
            return
        value, iteration = entry
        is_better = self.best_metric is None or self._sign * (value - self.best_metric) > 0
        if math.isfinite(value) and is_better and self.trainer.native_runner.may_write:
            self.best_metric, self.best_iter = value, iteration
            self.checkpointer.save(self.file_prefix, iteration=iteration)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and its iteration; empty before the first reading."""
        if self.best_metric is None:
            return {}
        return {"best_metric": self.best_metric, "best_iter": self.best_iter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value and its iteration."""
        self.best_metric, self.best_iter = state_dict["best_metric"], state_dict["best_iter"]


def _check_checkpointer(checkpointer: Any) -> None:
    if not callable(getattr(checkpointer, "save", None)):
        raise TypeError(f"checkpointer must have save(name), got {shown(checkpointer)}")


class TrainerFacade(StepFacade):
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

    def _times(self, loading: float) -> dict[str, float]:
        return {"rank_data_time": loading, "data_time": loading}

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
