"""The hooks that detectron2 and cvpods have in common, on a ``trainer`` of steps.

Each dialect derives its own class from these and from its ``HookBase``.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.population_stats import bn_layers, update_bn_stats

__all__ = [
    "CallbackHook",
    "EvalHook",
    "IterationTimer",
    "LRScheduler",
    "PeriodicWriter",
    "PreciseBN",
    "StepTimer",
    "flat",
    "is_due",
    "reported_group",
]


def is_due(iteration: int, period: int, max_iter: int | None) -> bool:
    """Whether something happens after an iteration: every ``period``, and after the last one.

    >>> [is_due(i, 3, 5) for i in range(5)], is_due(4, 0, 5)
    ([False, False, True, False, True], True)
    """
    every = period > 0 and (iteration + 1) % period == 0
    return every or (max_iter is not None and iteration == max_iter - 1)


def flat(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested dict, with the keys on the way to them.

    >>> dict(flat({"bbox": {"AP": 0.5, "AP50": 0.7}, "speed": 2.0}))
    {'bbox/AP': 0.5, 'bbox/AP50': 0.7, 'speed': 2.0}
    """
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def reported_group(optimizer: torch.optim.Optimizer) -> int:
    """Return which parameter group's learning rate is to stand for all.

    It is the first of the groups with most parameters; where each has a single one, the first
    with the most common learning rate.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if max(sizes) > 1:
        return sizes.index(max(sizes))
    rates = [group["lr"] for group in optimizer.param_groups]
    return rates.index(Counter(rates).most_common(1)[0][0])


def _period(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value


class StepTimer:
    """The times of steps, and the sum of them, without what hooks take between them.

    Args:
        warmup_iter: The first step that counts, from 1.
    """

    def __init__(self, warmup_iter: int) -> None:
        self.warmup_iter = _period("warmup_iter", warmup_iter, 0)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.began = self.step_began = time.perf_counter()
        self.in_steps = 0.0
        self.done = self.counted = 0

    def start_step(self) -> None:
        """A step begins."""
        self.step_began = time.perf_counter()

    def end_step(self) -> float | None:
        """A step has ended; return its seconds if it counts."""
        now = time.perf_counter()
        self.done += 1
        if self.done < self.warmup_iter:
            self.began = now
            return None
        self.counted += 1
        self.in_steps += now - self.step_began
        return now - self.step_began

    def summary(self) -> Iterator[str]:
        """Yield the lines with the speed and the total time."""
        total = time.perf_counter() - self.began
        if self.counted and self.in_steps > 0:
            yield (
                f"Overall training speed: {self.counted} iterations in "
                f"{_clock(self.in_steps)} ({self.in_steps / self.counted:.4f} s / it)"
            )
        yield f"Total training time: {_clock(total)} ({_clock(total - self.in_steps)} on hooks)"


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=int(seconds)))


class IterationTimer:
    """Puts each step's seconds into the storage as ``time``; tells speed and total at the end.

    It stands first among the hooks, so that what the others take between steps is told apart.

    Args:
        warmup_iter: The first iteration that is timed, from 1.
    """

    trainer: Any

    def __init__(self, warmup_iter: int = 3) -> None:
        self._timer = StepTimer(warmup_iter)

    def before_train(self) -> None:
        """Start the clock."""
        self._timer.reset()

    def before_step(self) -> None:
        """Start the step's clock."""
        self._timer.start_step()

    def after_step(self) -> None:
        """Store how long the step took."""
        seconds = self._timer.end_step()
        if seconds is not None:
            self.trainer.storage.put_scalars(time=seconds)

    def after_train(self) -> None:
        """Tell the speed."""
        for line in self._timer.summary():
            self.trainer.logger.info(line)


class PeriodicWriter:
    """Has writers write every so many iterations, after the last one and at the end.

    Args:
        writers: Objects with ``write()`` and ``close()``; they are used on rank 0.
        period: Iterations from one writing to the next.
    """

    trainer: Any
    _at_first = False
    _writes_at_end = True

    def __init__(self, writers: Sequence[Any], period: int = 20) -> None:
        for writer in writers:
            if not callable(getattr(writer, "write", None)):
                raise TypeError(f"writers must be EventWriters, got {writer!r}")
        self._writers = list(writers)
        self._period = _period("period", period, 1)

    def after_step(self) -> None:
        """Write if it is time to."""
        done = self.trainer.iter
        if self.trainer.rank != 0:
            return
        if is_due(done, self._period, self.trainer.max_iter) or (self._at_first and done == 0):
            for writer in self._writers:
                writer.write()

    def after_train(self) -> None:
        """Write what other hooks have put at the end, and close the writers."""
        for writer in self._writers if self.trainer.rank == 0 else ():
            if self._writes_at_end:
                writer.write()
            writer.close()


class LRScheduler:
    """Steps a learning rate scheduler after every iteration, and stores ``lr``.

    The rate stored is the one that the iteration had, of the group that :func:`reported_group`
    picks.

    Args:
        optimizer: The Trainer's by default.
        scheduler: A scheduler of torch, or a function of the run's progress in [0, 1] that
            returns the factor of the initial rate (as fvcore's ``ParamScheduler``). Without one,
            the rate of the Trainer's own scheduler is stored, which Lightning steps.

    Raises:
        TypeError: if ``scheduler`` is neither.
        ValueError: at the start of a run, if it belongs to an optimizer that is not trained.
    """

    trainer: Any

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        if not (scheduler is None or hasattr(scheduler, "step") or callable(scheduler)):
            raise TypeError(f"scheduler must have step() or be a function, got {scheduler!r}")
        self._given = optimizer
        self._optimizer = optimizer
        self._schedule = None if hasattr(scheduler, "step") else scheduler
        self._scheduler: Any = scheduler if self._schedule is None else None

    @property
    def scheduler(self) -> Any:
        """The scheduler."""
        return self.trainer.scheduler if self._scheduler is None else self._scheduler

    @staticmethod
    def get_best_param_group_id(optimizer: Any) -> int:
        """Which group's rate is stored."""
        return reported_group(optimizer)

    def before_train(self) -> None:
        """Take from the Trainer what was not given."""
        trained = self.trainer.optimizer
        self._optimizer = trained if self._given is None else self._given
        if self._schedule is not None:
            schedule = _OfProgress(self._schedule, self.trainer.max_iter)
            self._scheduler = torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, schedule, last_epoch=self.trainer.iter - 1
            )
        ours = getattr(self._scheduler, "optimizer", self._optimizer)
        many = trained.values() if isinstance(trained, Mapping) else [trained]
        if not any(ours.param_groups is one.param_groups for one in many):
            raise ValueError(
                "LRScheduler's optimizer is not the one that is trained: "
                "let configure_optimizers() return the very object"
            )
        self._group = reported_group(self._optimizer)

    def before_step(self) -> None:
        """Note the rate: at the end of an epoch Lightning sets the next before ``after_step``."""
        self._rate = self._optimizer.param_groups[self._group]["lr"]

    def after_step(self) -> None:
        """Store this iteration's rate, and set the next one's."""
        if self._scheduler is not None:
            self._rate = self._optimizer.param_groups[self._group]["lr"]
            self._scheduler.step()
        self.trainer.storage.put_scalar("lr", self._rate, smoothing_hint=False)

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, if it has one that Lightning does not save."""
        if hasattr(self._scheduler, "state_dict"):
            return dict(self._scheduler.state_dict())
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the scheduler its state back."""
        if hasattr(self._scheduler, "load_state_dict"):
            self._scheduler.load_state_dict(state_dict)


class _OfProgress:
    """A factor by iteration, from a function of the run's progress."""

    def __init__(self, schedule: Callable[[float], float], max_iter: int | None) -> None:
        if max_iter is None:
            raise ValueError("a schedule over the run's progress needs a run with a known end")
        self.schedule, self.max_iter = schedule, max_iter

    def __call__(self, iteration: int) -> float:
        return self.schedule(iteration / self.max_iter)


class EvalHook:
    """Evaluates every so many iterations and after the last one; the storage gets the results.

    Args:
        eval_period: Iterations from one evaluation to the next; 0: only at the end.
        eval_function: Called without arguments; returns a dict of numbers, nested or not, whose
            keys are joined by slashes, or nothing.

    Raises:
        TypeError: from the evaluation, if it returns something else than a dict.
        ValueError: from the evaluation, if a value is no number.

    Note:
        Departure from detectron2: the function is kept, so that the hook can take part in another
        run.
    """

    trainer: Any
    _last_in_after_train = True

    def __init__(self, eval_period: int, eval_function: Callable[[], Any]) -> None:
        if not callable(eval_function):
            raise TypeError(f"eval_function must be a function, got {eval_function!r}")
        self._period = _period("eval_period", eval_period, 0)
        self._function = eval_function

    def after_step(self) -> None:
        """Evaluate if it is time to."""
        done, max_iter = self.trainer.iter, self.trainer.max_iter
        is_last = max_iter is not None and done + 1 == max_iter
        if is_due(done, self._period, max_iter) and not (is_last and self._last_in_after_train):
            self._evaluate()

    def after_train(self) -> None:
        """Evaluate what a complete run has made."""
        max_iter = self.trainer.max_iter
        complete = max_iter is None or self.trainer.iter + 1 >= max_iter
        if self._last_in_after_train and complete:
            self._evaluate()

    def _evaluate(self) -> None:
        results = self._function()
        if not results:
            return
        if not isinstance(results, Mapping):
            raise TypeError(f"eval_function must return a dict of numbers, got {results!r}")
        numbers = {name: _number(name, value) for name, value in flat(results)}
        self.trainer.storage.put_scalars(**numbers, smoothing_hint=False)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"eval_function must return numbers, got {name}={value!r}") from error


class PreciseBN:
    """Gives BatchNorm layers the statistics of many batches, every so many iterations and last.

    Args:
        period: Iterations from one update to the next; 0: only after the last.
        model: The model.
        data_loader: What yields the model's inputs; it is read on, from one update to the next.
        num_iter: Batches of each update.

    See :func:`lightning_hooks.update_bn_stats` for what is computed.
    """

    trainer: Any

    def __init__(
        self, period: int, model: torch.nn.Module, data_loader: Iterable[Any], num_iter: int
    ) -> None:
        self._period = _period("period", period, 0)
        self._num_iter = _period("num_iter", num_iter, 1)
        self._model, self._data_loader = model, data_loader
        self._batches: Iterator[Any] | None = None

    def after_step(self) -> None:
        """Update if it is time to."""
        if is_due(self.trainer.iter, self._period, self.trainer.max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now."""
        if not bn_layers(self._model):
            return
        if self._batches is None:
            self._batches = iter(self._data_loader)
        update_bn_stats(self._model, self._batches, self._num_iter)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


class CallbackHook:
    """Calls a function at each point for which one is given.

    Args:
        before_train: Called with the trainer, as the others are.
        after_train: Also where training raises.
        before_step: Before each iteration.
        after_step: After each iteration.
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
        for point, function in self._functions.items():
            if not (function is None or callable(function)):
                raise TypeError(f"{point} must be a function of the trainer, got {function!r}")

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
