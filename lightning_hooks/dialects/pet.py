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
iterations. :class:`~lightning_hooks.dialects.pet.TestHook` times a test.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.callbacks import Callback

from lightning_hooks.dialects import events
from lightning_hooks.dialects.detectron2 import (
    check_writers,
    endless,
    is_due,
    is_first_rank,
    reported_group,
    speed_lines,
)
from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.events import (
    CommonMetricPrinter,
    EventWriter,
    HistoryBuffer,
    TensorboardXWriter,
    VisdomWriter,
)
from lightning_hooks.dialects.step_loop import StepFacade, step_dialect
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.batch_norm import population_stats
from lightning_hooks.utils.arguments import check_int, shown

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


class EventStorage(events.EventStorage):
    """The scalars, images and histograms of a run."""


class Timer:
    """A stopwatch for parts, from ``tic`` to ``toc``, and for the whole time without pauses.

    ``diff`` is the last part in seconds, ``total_time`` the sum of the parts, ``calls`` the number
    of parts and ``average_time`` the mean. ``seconds()`` is the time from the start without pauses.

    >>> timer = Timer()
    >>> timer.pause()
    >>> timer.is_paused(), timer.calls, timer.average_time
    (True, 0, 0.0)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again from zero."""
        self.start_time = time.perf_counter()
        self.diff = self.total_time = 0.0
        self.calls = 0
        self._before = 0.0  # seconds before the last pause
        self._resumed: float | None = self.start_time
        self._starts = 1

    def tic(self) -> None:
        """Start a part."""
        self.start_time = time.perf_counter()

    def toc(self, average: bool = True) -> float:
        """End the part; return the mean of all parts, or this part's seconds."""
        self.diff = time.perf_counter() - self.start_time
        self.total_time += self.diff
        self.calls += 1
        return self.average_time if average else self.diff

    @property
    def average_time(self) -> float:
        """The mean seconds of a part."""
        return self.total_time / self.calls if self.calls else 0.0

    def pause(self) -> None:
        """Pause.

        Raises:
            ValueError: for a paused timer.
        """
        if self._resumed is None:
            raise ValueError("Timer.pause() needs a running timer, and this timer is paused")
        self._before, self._resumed = self.seconds(), None

    def resume(self) -> None:
        """Continue after a pause.

        Raises:
            ValueError: for a running timer.
        """
        if self._resumed is not None:
            raise ValueError("Timer.resume() needs a paused timer, and this timer runs")
        self._resumed = time.perf_counter()
        self._starts += 1

    def is_paused(self) -> bool:
        """Return whether the timer is paused."""
        return self._resumed is None

    def seconds(self) -> float:
        """Return the seconds since the start, without pauses."""
        running = 0.0 if self._resumed is None else time.perf_counter() - self._resumed
        return self._before + running

    def avg_seconds(self) -> float:
        """Return the seconds between two pauses, on average."""
        return self.seconds() / self._starts


def logging_rank(*parts: Any, distributed: bool = True, local_rank: int | None = None) -> None:
    """Log a line, on the first rank only.

    Args:
        parts: Parts of the line, joined without spaces.
        distributed: Whether other ranks are silent.
        local_rank: Number of this process, passed by Pet's loops; taken from torch by default.
    """
    is_first = is_first_rank() if local_rank is None else local_rank == 0
    if is_first or not distributed:
        logging.getLogger("lightning_hooks").info("%s", "".join(map(str, parts)))


def get_bn_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the BatchNorm layers in train mode, updated by ``update_bn_stats``."""
    return [*population_stats.bn_layers(model)]


def update_bn_stats(
    model: torch.nn.Module,
    data_loader: Iterable[Any],
    device: torch.device | str | None = None,
    num_iters: int = 200,
) -> None:
    """Set the statistics of BatchNorm layers from some batches.

    Args:
        model: The model.
        data_loader: Iterable of the model's inputs.
        device: Device for the inputs; by default the inputs stay where they are.
        num_iters: The maximum number of batches.

    Raises:
        ValueError: for a loader without a batch.

    See :func:`lightning_hooks.update_bn_stats` for the formula.
    """

    def forward(model: Any, batch: Any) -> Any:
        return model(batch if device is None else move_data_to_device(batch, torch.device(device)))

    if not population_stats.update_bn_stats(model, data_loader, num_iters, forward=forward):
        raise ValueError(f"update_bn_stats() got no batch from {type(data_loader).__name__}")


def accepted_keywords(method: Callable[..., Any]) -> set[str] | None:
    """Return the keywords accepted by a method; None for all.

    >>> accepted_keywords(lambda storage, epoch=None: 0) == {"storage", "epoch"}
    True
    """
    parameters = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


class TrainHook:
    """The base of Pet's hooks: override any of the points."""

    hook_dialect = "pet"

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Before the first iteration."""

    def after_train(self, *args: Any, **kwargs: Any) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self, *args: Any, **kwargs: Any) -> None:
        """Before each iteration."""

    def after_step(self, *args: Any, **kwargs: Any) -> None:
        """After each iteration; ``storage.iter`` is the iteration's number, from 1."""


class PeriodicWriter(TrainHook):
    """Calls writers every ``display_iter`` iterations and before the last; closes the writers.

    In a run counted in epochs the hook also stores ``epoch``.

    Args:
        writers: Objects with ``write()`` and ``close()``, used on rank 0 only. ``epoch`` and
            ``max_epoch`` are passed to a ``write`` with these keywords.
        max_iter: Number of iterations of the run; in a run counted in epochs, of an epoch.
        display_iter: Number of iterations between two writes.

    As in Pet, iterations count from 1, and the writers are called where ``storage.iter + 1`` is a
    multiple of ``display_iter`` or ``storage.iter`` is the last iteration but one. In a run counted
    in epochs, ``storage.iter % max_iter`` replaces ``storage.iter``.
    """

    def __init__(self, writers: Sequence[Any], max_iter: int, display_iter: int = 20) -> None:
        self.writers = check_writers(writers)
        check_int("max_iter", max_iter, 1)
        check_int("display_iter", display_iter, 1)
        self.max_iter, self.display_iter = max_iter, display_iter

    def after_step(
        self, storage: Any, epoch: int | None = None, max_epoch: int | None = None, **kwargs: Any
    ) -> None:
        """Write if the iteration ends a period, or the run; by epoch, the epoch."""
        iteration = storage.iter
        if epoch is not None:
            storage.put_scalar("epoch", epoch, smoothing_hint=False)
            iteration %= self.max_iter
        if is_due(iteration, self.display_iter, self.max_iter):
            epochs = {"epoch": epoch, "max_epoch": max_epoch}
            for writer in self.writers if is_first_rank() else ():
                names = accepted_keywords(writer.write)
                writer.write(**{k: v for k, v in epochs.items() if names is None or k in names})

    def after_train(self, **kwargs: Any) -> None:
        """Close the writers."""
        for writer in self.writers if is_first_rank() else ():
            writer.close()


class IterationTimer(TrainHook):
    """Stores each step's seconds as ``time``; logs speed and total time at the end.

    ``step_timer`` is the :class:`~lightning_hooks.dialects.pet.Timer` of the step.

    Args:
        max_iter: Number of the last iteration.
        start_iter: Number of the first iteration, from 1.
        warmup_iter: Number of warm-up iterations, not counted in the logged speed.
        ignore_warmup_time: Whether to time from the ``warmup_iter``-th iteration on.
    """

    def __init__(
        self,
        max_iter: int,
        start_iter: int = 1,
        warmup_iter: int = 3,
        ignore_warmup_time: bool = False,
    ) -> None:
        check_int("max_iter", max_iter, 1)
        check_int("start_iter", start_iter, 0)
        check_int("warmup_iter", warmup_iter, 0)
        self.max_iter, self.start_iter = max_iter, start_iter
        self.warmup_iter, self.ignore_warmup_time = warmup_iter, ignore_warmup_time
        self.step_timer = Timer()

    def before_train(self, **kwargs: Any) -> None:
        """Start the timer of the run."""
        self._began = time.perf_counter()
        self._in_steps = 0.0

    def before_step(self, **kwargs: Any) -> None:
        """Start the timer of the step."""
        self.step_timer.reset()

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store the seconds of the step."""
        if self.ignore_warmup_time and self._counted(storage) < 0:
            self._began = time.perf_counter()
            return
        seconds = self.step_timer.seconds()
        self._in_steps += seconds
        storage.put_scalars(time=seconds)

    def after_train(self, storage: Any, **kwargs: Any) -> None:
        """Log speed and total time."""
        total = time.perf_counter() - self._began
        for line in speed_lines(self._counted(storage), self._in_steps, total):
            logging_rank(line)

    def _counted(self, storage: Any) -> int:
        """Return the number of counted iterations before ``storage.iter + 1``."""
        return int(storage.iter) + 1 - self.start_iter - self.warmup_iter


class LRScheduler(TrainHook):
    """Stores ``lr`` after every iteration, and steps the scheduler.

    ``lr`` is the rate used in the iteration, of the group with the most parameters; if each group
    has a single parameter, the most common rate.

    Args:
        optimizer: The optimizer.
        scheduler: Object with ``step()``.
    """

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        if not callable(getattr(scheduler, "step", None)):
            raise TypeError(f"scheduler must have step(), got {shown(scheduler)}")
        self.optimizer, self.scheduler = optimizer, scheduler
        self._best_param_group_id = reported_group(optimizer)

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store the rate of this iteration, then step the scheduler."""
        rate = self.optimizer.param_groups[self._best_param_group_id]["lr"]
        storage.put_scalar("lr", rate, smoothing_hint=False)
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state; empty for a scheduler without state."""
        state: Any = getattr(self.scheduler, "state_dict", dict)()
        return dict(state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler."""
        self.scheduler.load_state_dict(state_dict)


class PreciseBN(TrainHook):
    """Sets the statistics of BatchNorm layers from many batches, every period and at the end.

    A model without BatchNorm layers in train mode disables the hook.

    Args:
        precise_bn_args: The model, an iterable of the model's inputs, read again at its end, and,
            optionally, a device for the inputs: in any order, or as a dict of ``model``,
            ``data_loader`` and ``device``.
        period: Number of iterations between two updates; 0: only after the last iteration.
        num_iter: Number of batches for each update.
        max_iter: Number of the last iteration.
    """

    def __init__(self, precise_bn_args: Any, period: int, num_iter: int, max_iter: int) -> None:
        check_int("period", period, 0)
        check_int("num_iter", num_iter, 1)
        check_int("max_iter", max_iter, 1)
        self.model, self.data_loader, self.device = _model_loader_device(precise_bn_args)
        self.period, self.num_iter, self.max_iter = period, num_iter, max_iter
        self.data_iter: Iterator[Any] | None = None
        self.disabled = not get_bn_modules(self.model)
        if self.disabled:
            logging_rank("PreciseBN is disabled: the model has no BatchNorm layers in train mode")

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Update if the iteration ends a period or the run."""
        if is_due(storage.iter - 1, self.period, self.max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now; scalars stored by the model meanwhile are dropped."""
        if self.disabled:
            return
        if self.data_iter is None:
            self.data_iter = endless(self.data_loader)
        with EventStorage():
            update_bn_stats(self.model, self.data_iter, self.device, self.num_iter)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "data_iter": None}


def _model_loader_device(args: Any) -> tuple[torch.nn.Module, Iterable[Any], Any]:
    if isinstance(args, Mapping):
        args = [args.get("model"), args.get("data_loader"), args.get("device")]
    devices = [a for a in args if isinstance(a, (torch.device, str))]
    models = [a for a in args if isinstance(a, torch.nn.Module)]
    known = (torch.device, str, torch.nn.Module)
    loaders = [a for a in args if a is not None and not isinstance(a, known)]
    if len(models) != 1 or len(loaders) != 1 or not hasattr(loaders[0], "__iter__"):
        raise ValueError(
            f"precise_bn_args must be a model, a loader and perhaps a device, got {shown(args)}"
        )
    return models[0], loaders[0], torch.device(devices[0]) if devices else None


class JSONWriter(events.JSONWriter):
    """Appends scalars to a file as JSON: :class:`~lightning_hooks.dialects.events.JSONWriter`.

    As in Pet, ``iteration`` in a line is ``storage.iter + 1``.
    """

    _first_iteration = 1


class _WarmTimer(Timer):
    """A timer that does not count the first parts; ``start_time`` is 0 between two parts.

    Args:
        num_warmup: Number of parts that are not counted.
    """

    def __init__(self, num_warmup: int) -> None:
        super().__init__()
        self.start_time, self._warmup = 0.0, num_warmup

    def toc(self, average: bool = True) -> float:
        super().toc()
        self.start_time = 0.0
        if self._warmup > 0:
            self._warmup, self.total_time, self.calls = self._warmup - 1, 0.0, 0
        return self.average_time or self.diff


class TestHook(Callback):
    """Times the parts of a test.

    In a plain loop::

        hook = TestHook("model.yaml", logperiod=10, num_warmup=5)
        hook.iter_tic(); hook.data_tic()
        for i, batch in enumerate(loader):
            hook.data_toc(); hook.infer_tic()
            outputs = model(batch)
            hook.infer_toc(); hook.post_tic()
            keep(outputs)
            hook.post_toc(); hook.iter_toc()
            hook.log_stats(i, 0, len(loader), len(loader))
            hook.iter_tic(); hook.data_tic()

    In ``Trainer(callbacks=[hook])`` the hook times ``Trainer.test``: ``data`` is the loading of a
    batch, ``infer`` the test step, ``iter`` both. The module may call ``post_tic`` and
    ``post_toc`` to time the work after inference.

    Starting and stopping a timer synchronizes the device. ``iter`` is the number of stops of the
    timer ``iter``.

    Args:
        cfg_filename: Name at the start of the lines.
        logperiod: Number of iterations between two lines.
        num_warmup: Number of first calls of every timer left out of the average.
    """

    hook_dialect = "pet"
    __test__ = False  # for pytest
    default_timers = ("iter", "data", "infer", "post")

    def __init__(self, cfg_filename: str = "", logperiod: int = 10, num_warmup: int = 5) -> None:
        check_int("logperiod", logperiod, 1)
        check_int("num_warmup", num_warmup, 0)
        self.cfg_filename = str(cfg_filename)
        self.logperiod = logperiod
        self.num_warmup = num_warmup
        self.iter = 0
        self.timers: dict[str, _WarmTimer] = {}
        for name in self.default_timers:
            self.add_timer(name)

    # -- timers ----------------------------------------------------------------------------

    def add_timer(self, name: str) -> Timer:
        """Add a timer, with methods ``<name>_tic()`` and ``<name>_toc()``; return the timer.

        Raises:
            ValueError: for the name of a timer, or a name that is no identifier.
        """
        if name in self.timers:
            raise ValueError(f"the timer {name!r} exists already")
        if not name.isidentifier():
            raise ValueError(f"name must be a valid identifier, got {shown(name)}")
        timer = self.timers[name] = _WarmTimer(self.num_warmup)
        return timer

    def reset_timer(self, name: str | None = None) -> None:
        """Reset a timer, or all timers, to zero."""
        for each in [*self.timers] if name is None else [name]:
            self._timer(each)
            self.timers[each] = _WarmTimer(self.num_warmup)

    def tic(self, name: str) -> None:
        """Start a timer; a new name adds a timer."""
        if name not in self.timers:
            self.add_timer(name)
        self.wait()
        self.timers[name].tic()

    def toc(self, name: str) -> float:
        """Stop a timer; return its average in seconds.

        Raises:
            ValueError: for an unknown name.
            RuntimeError: for a stopped timer.
        """
        timer = self._timer(name)
        if not timer.start_time:
            raise RuntimeError(f"toc({name!r}) without tic({name!r})")
        self.wait()
        self.iter += name == "iter"
        return timer.toc()

    def wait(self) -> None:
        """Wait until the GPU has finished its work."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()

    def average(self, name: str) -> float:
        """Return the average seconds of a timer; during the warm-up, the last seconds."""
        timer = self._timer(name)
        return timer.average_time or timer.diff

    def _timer(self, name: str) -> _WarmTimer:
        if name not in self.timers:
            raise ValueError(f"no timer {name!r}; known: {', '.join(self.timers)}")
        return self.timers[name]

    def __getattr__(self, name: str) -> Any:
        timer, _, verb = name.rpartition("_")
        if timer and verb in ("tic", "toc"):
            return functools.partial(getattr(self, verb), timer)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- lines -----------------------------------------------------------------------------

    def log_stats(
        self,
        cur: int,
        start: int,
        end: int,
        total: int,
        ims_per_gpu: int = 1,
        suffix: str | None = None,
        log_all: bool = False,
    ) -> str | None:
        """Log a line every ``logperiod`` iterations and after the last; return the line.

        Args:
            cur: Index of the iteration, from 0.
            start: Index of this process's first image.
            end: Index after this process's last image.
            total: Number of images of all processes.
            ims_per_gpu: Number of images of an iteration.
            suffix: Text at the end of the line.
            log_all: Whether to show timers added by the user too.
        """
        done, images = min((cur + 1) * ims_per_gpu, end - start), end - start
        if (cur + 1) % self.logperiod and done < images:
            return None
        added = [name for name, timer in self.timers.items() if timer.calls] if log_all else []
        shown = dict.fromkeys((*self.default_timers, *added))
        parts = " + ".join(f"{n} {self.average(n):.3f}s" for n in shown if n != "iter")
        rest = (images - done) / ims_per_gpu * self.average("iter")
        line = (
            f"[Testing][range:{start + 1}-{end} of {total}][{done}/{images}]"
            f"[{self.average('iter'):.3f}s = {parts}]"
            f"[eta: {datetime.timedelta(seconds=int(rest))}]"
        )
        line = f"{self.cfg_filename} {line}" if self.cfg_filename else line
        line = f"{line} {suffix}" if suffix else line
        logging.getLogger("lightning_hooks").info(line)
        return line

    # -- as a callback ---------------------------------------------------------------------

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset all timers."""
        self.iter = 0
        self.reset_timer()

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the timers of the first batch."""
        self.tic("iter")
        self.tic("data")

    def on_test_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *batch: Any
    ) -> None:
        """Stop the timer of loading, and start the timer of the step."""
        self.toc("data")
        self.tic("infer")

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log the step, and start the timers of the next batch."""
        self.toc("infer")
        self.toc("iter")
        batches = trainer.num_test_batches[dataloader_idx]
        if batches != float("inf"):
            self.log_stats(batch_idx, 0, int(batches), int(batches) * trainer.world_size)
        self.tic("iter")
        self.tic("data")


get_event_storage = EventStorage.innermost


class _Facade(StepFacade):
    storage_class = EventStorage
    first_iter = 1
    is_trainer = False

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.accepted_keywords = functools.cache(accepted_keywords)


def _arguments(facade: _Facade, point: str, method: Any) -> Arguments:
    if point == "before_train":
        return (), {}
    values: dict[str, Any] = {"storage": facade.storage}
    if point == "after_step" and facade.counts_epochs:
        epochs = facade.max_epoch
        values |= {"epoch": facade.epoch + 1, "max_epoch": epochs, "max_epochs": epochs}
    names = facade.accepted_keywords(method)
    return (), values if names is None else {k: v for k, v in values.items() if k in names}


DIALECT = step_dialect("pet", _Facade, arguments=_arguments, base="TrainHook")
