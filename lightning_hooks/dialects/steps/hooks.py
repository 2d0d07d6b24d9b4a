"""The hooks of detectron2 and cvpods, and the parts shared with Pet's hooks.

A hook works on ``self.trainer``, a loop of steps. Each dialect derives a class of the same name
from the class in this file and from the dialect's ``HookBase``.
"""

from __future__ import annotations

import datetime
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "AutogradProfiler",
    "CallbackHook",
    "EvalHook",
    "HookBase",
    "IterationTimer",
    "LRScheduler",
    "PeriodicWriter",
    "PreciseBN",
    "StepProfiler",
    "check_writers",
    "flatten",
    "is_due",
    "is_first_rank",
    "reported_group",
    "speed_lines",
]


class HookBase:
    """A hook in a loop of steps, with four points that do nothing."""

    trainer: Any = None

    def before_train(self) -> None:
        """Before the first iteration."""

    def after_train(self) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self) -> None:
        """Before each iteration."""

    def after_step(self) -> None:
        """After each iteration; ``trainer.iter`` is the iteration's number, from 0."""


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
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not distributed or torch.distributed.get_rank() == 0


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
            raise TypeError(f"writers must be EventWriters, got {writer!r}")
    return list(writers)


class PeriodicWriter:
    """Calls writers every period, after the last iteration and after the run.

    Args:
        writers: Objects with ``write()`` and ``close()``; only rank 0 uses them.
        period: Number of iterations between two writes.
    """

    trainer: Any
    _writes_first = False
    _writes_after_train = True

    def __init__(self, writers: Sequence[Any], period: int = 20) -> None:
        self._writers = check_writers(writers)
        check_int("period", period, 1)
        self._period = period

    def after_step(self) -> None:
        """Write if the iteration ends a period."""
        done, trainer = self.trainer.iter, self.trainer
        if trainer.rank != 0:
            return
        if is_due(done, self._period, trainer.max_iter) or (self._writes_first and done == 0):
            for writer in self._writers:
                writer.write()

    def after_train(self) -> None:
        """Write the last values of other hooks, and close the writers."""
        for writer in self._writers if self.trainer.rank == 0 else ():
            if self._writes_after_train:
                writer.write()
            writer.close()


class EvalHook:
    """Calls an evaluation every period and after the last iteration; stores its results.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: Function without arguments; returns a dict of numbers or nothing. The keys
            of nested dicts are joined by slashes.

    Raises:
        TypeError: at an evaluation with another result than a dict.
        ValueError: at an evaluation with a value that is not a number.

    Note:
        Departure from detectron2: the hook keeps the function after a run, for a further run.
    """

    trainer: Any
    _last_in_after_train = True

    def __init__(self, eval_period: int, eval_function: Callable[[], Any]) -> None:
        if not callable(eval_function):
            raise TypeError(f"eval_function must be a function, got {eval_function!r}")
        check_int("eval_period", eval_period, 0)
        self._period = eval_period
        self._function = eval_function

    def after_step(self) -> None:
        """Evaluate if the iteration ends a period."""
        done, max_iter = self.trainer.iter, self.trainer.max_iter
        is_last = max_iter is not None and done + 1 == max_iter
        if is_due(done, self._period, max_iter) and not (is_last and self._last_in_after_train):
            self._evaluate()

    def after_train(self) -> None:
        """Evaluate the result of a complete run."""
        max_iter = self.trainer.max_iter
        is_complete = max_iter is None or self.trainer.iter + 1 >= max_iter
        if self._last_in_after_train and is_complete:
            self._evaluate()

    def _evaluate(self) -> None:
        results = self._function()
        if not results:
            return
        if not isinstance(results, Mapping):
            raise TypeError(f"eval_function must return a dict of numbers, got {results!r}")
        numbers = {name: _as_float(name, value) for name, value in flatten(results)}
        self.trainer.storage.put_scalars(**numbers, smoothing_hint=False)


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"eval_function must return numbers, got {name}={value!r}") from error


class CallbackHook:
    """Calls a function of the trainer at each point.

    Args:
        before_train: Called before the first iteration.
        after_train: Called after the last iteration, also when training has raised.
        before_step: Called before each iteration.
        after_step: Called after each iteration.
    """

    trainer: Any

    def __init__(
        self,
        *,
        before_train: Callable[[Any], Any] | None = None,
        after_train: Callable[[Any], Any] | None = None,
        before_step: Callable[[Any], Any] | None = None,
        after_step: Callable[[Any], Any] | None = None,
    ) -> None:
        self._functions = {
            "before_train": before_train,
            "after_train": after_train,
            "before_step": before_step,
            "after_step": after_step,
        }

    def _call(self, point: str) -> None:
        function = self._functions[point]
        if function is not None:
            function(self.trainer)

    def before_train(self) -> None:
        """Call the function for this point."""
        self._call("before_train")

    def after_train(self) -> None:
        """Call the function for this point."""
        self._call("after_train")

    def before_step(self) -> None:
        """Call the function for this point."""
        self._call("before_step")

    def after_step(self) -> None:
        """Call the function for this point."""
        self._call("after_step")


class StepProfiler:
    """The base of hooks that profile selected iterations, each into a file.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles the step.
        output_dir: Directory of the files.
    """

    trainer: Any

    def __init__(self, enable_predicate: Callable[[Any], bool], output_dir: str) -> None:
        self._is_enabled = enable_predicate
        self._output_dir = os.fspath(output_dir)
        self._profiler: Any = None

    def before_step(self) -> None:
        """Start a profiler if ``enable_predicate`` selects this step."""
        if self._is_enabled(self.trainer):
            self._profiler = self._make_profiler()
            self._profiler.__enter__()

    def after_step(self) -> None:
        """Stop the profiler, and write the files."""
        profiler = self._stop()
        if profiler is not None:
            os.makedirs(self._output_dir, exist_ok=True)
            self._write(profiler)

    def after_train(self) -> None:
        """Stop the profiler of a failed step."""
        self._stop()

    def _make_profiler(self) -> Any:
        raise NotImplementedError

    def _write(self, profiler: Any) -> None:
        profiler.export_chrome_trace(self._path("profiler-trace-iter{}.json"))

    def _path(self, name: str) -> str:
        return os.path.join(self._output_dir, name.format(self.trainer.iter))

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.__exit__(None, None, None)
        return profiler


class AutogradProfiler(StepProfiler):
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


class IterationTimer:
    """Stores each step's seconds as ``time``; logs speed and total time at the end.

    List the timer first: the time of the other hooks is then logged separately.

    Args:
        warmup_iter: Number of the first timed iteration, from 1.
    """

    trainer: Any

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


class LRScheduler:
    """Steps a learning rate scheduler after every iteration, and stores ``lr``.

    ``lr`` is the rate used in the iteration, of the group of :func:`reported_group`.

    Args:
        optimizer: The optimizer; the Trainer's by default.
        scheduler: Scheduler of torch, or function from the run's progress in [0, 1] to a factor of
            the initial rate (as fvcore's ``ParamScheduler``). Without a scheduler the hook stores
            the rate of the Trainer's own scheduler, stepped by Lightning.

    Raises:
        TypeError: if ``scheduler`` is neither.
        ValueError: at the start of a run, if the Trainer does not train the optimizer.
    """

    trainer: Any

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        if not (scheduler is None or hasattr(scheduler, "step") or callable(scheduler)):
            raise TypeError(f"scheduler must have step() or be a function, got {scheduler!r}")
        self._own_optimizer = optimizer
        self._optimizer = optimizer
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
        self._optimizer = trained if self._own_optimizer is None else self._own_optimizer
        if self._schedule is not None:
            schedule = _ProgressFactor(self._schedule, self.trainer.max_iter)
            self._scheduler = torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, schedule, last_epoch=self.trainer.iter - 1
            )
        own = getattr(self._scheduler, "optimizer", self._optimizer)
        optimizers = trained.values() if isinstance(trained, Mapping) else [trained]
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


class _ProgressFactor:
    """The factor of an iteration: ``schedule(iteration / max_iter)``."""

    def __init__(self, schedule: Callable[[float], float], max_iter: int | None) -> None:
        if max_iter is None:
            raise ValueError("a schedule over the run's progress needs a run with a known end")
        self.schedule, self.max_iter = schedule, max_iter

    def __call__(self, iteration: int) -> float:
        return self.schedule(iteration / self.max_iter)


class PreciseBN:
    """Sets the statistics of BatchNorm layers from many batches, every period and at the end.

    Args:
        period: Number of iterations between two updates; 0: only after the last iteration.
        model: The model.
        data_loader: Iterable of the model's inputs; each update continues after the last.
        num_iter: Number of batches for each update.

    See :func:`lightning_hooks.update_bn_stats` for the formula.
    """

    trainer: Any

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
                self._data_iter = iter(self._data_loader)
            with type(self.trainer.storage)():
                update_bn_stats(self._model, self._data_iter, self._num_iter)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data_iter": None}
