"""The hooks that detectron2 and cvpods have in common, on a ``trainer`` of steps.

Each dialect derives its own class from these and from its ``HookBase``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats

__all__ = [
    "CallbackHook",
    "EvalHook",
    "PeriodicWriter",
    "PreciseBN",
    "at_least",
    "flat",
    "is_due",
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


def at_least(name: str, value: Any, least: int) -> int:
    """Return an argument, if it is an int that is large enough."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value


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
        self._period = at_least("period", period, 1)

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
        self._period = at_least("eval_period", eval_period, 0)
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
        self._period = at_least("period", period, 0)
        self._num_iter = at_least("num_iter", num_iter, 1)
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
