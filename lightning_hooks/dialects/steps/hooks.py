"""The hooks that detectron2 and cvpods have in common, on a ``trainer`` of steps.

Each dialect derives its own class from these and from its ``HookBase``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.dialects.steps.base import is_due
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "AutogradProfiler",
    "CallbackHook",
    "EvalHook",
    "PeriodicWriter",
    "check_writers",
    "flatten",
]


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
        TypeError: if one of them has no ``write()``.
    """
    for writer in writers:
        if not callable(getattr(writer, "write", None)):
            raise TypeError(f"writers must be EventWriters, got {writer!r}")
    return list(writers)


class PeriodicWriter:
    """Calls writers at the end of every period, after the last iteration and after the run.

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
        eval_function: Function without arguments; returns a dict of numbers, nested or not, whose
            keys are joined by slashes, or nothing.

    Raises:
        TypeError: by the evaluation, if it returns something else than a dict.
        ValueError: by the evaluation, if a value is not a number.

    Note:
        Departure from detectron2: the function is not deleted after the run, so that the hook can
        take part in another one.
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
    """Calls the user's functions of the trainer, each at its point.

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


class AutogradProfiler:
    """Profiles selected iterations, each into a file for Chrome's tracing page.

    Args:
        enable_predicate: Function of the trainer, called before each step; True profiles it.
        output_dir: Directory of the files ``profiler-trace-iter{iteration}.json``.
        use_cuda: Whether a GPU is profiled too.
    """

    trainer: Any

    def __init__(
        self, enable_predicate: Callable[[Any], bool], output_dir: str, *, use_cuda: bool = True
    ) -> None:
        if not callable(enable_predicate):
            raise TypeError(
                f"enable_predicate must be a function of the trainer, got {enable_predicate!r}"
            )
        self._is_enabled = enable_predicate
        self._output_dir = output_dir
        self._use_cuda = use_cuda
        self._profiler: Any = None

    def before_step(self) -> None:
        """Start the profiler if the function selects this step."""
        if self._is_enabled(self.trainer):
            device = "cuda" if self._use_cuda and torch.cuda.is_available() else None
            self._profiler = torch.autograd.profiler.profile(use_device=device)
            self._profiler.__enter__()

    def after_step(self) -> None:
        """Stop the profiler, and write the file."""
        profiler = self._stop()
        if profiler is not None:
            os.makedirs(self._output_dir, exist_ok=True)
            name = f"profiler-trace-iter{self.trainer.iter}.json"
            profiler.export_chrome_trace(os.path.join(self._output_dir, name))

    def after_train(self) -> None:
        """Stop the profiler of a step that has failed."""
        self._stop()

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.__exit__(None, None, None)
        return profiler
