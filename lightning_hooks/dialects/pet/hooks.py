"""Pet's training hooks and writers."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from lightning_hooks.dialects.pet.tools import is_first_rank
from lightning_hooks.dialects.steps import writers
from lightning_hooks.dialects.steps.hooks import (
    StatisticsUpdate,
    StepTimer,
    check_writers,
    is_due,
    reported_group,
)
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "CommonMetricPrinter",
    "EventWriter",
    "IterationTimer",
    "JSONWriter",
    "LRScheduler",
    "PeriodicWriter",
    "PreciseBN",
    "TensorboardXWriter",
    "TrainHook",
    "VisdomWriter",
    "accepted_keywords",
]


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
    """Calls writers every ``display_iter`` iterations and after the last one; closes them.

    Args:
        writers: Objects with ``write()`` and ``close()``, used on rank 0 only. In a run counted in
            epochs, ``epoch`` and ``max_epoch`` are passed to a ``write`` with these keywords.
        max_iter: Number of the last iteration.
        display_iter: Number of iterations between two writes.
    """

    def __init__(self, writers: Sequence[Any], max_iter: int, display_iter: int = 20) -> None:
        self._writers = check_writers(writers)
        self._accepted = [accepted_keywords(writer.write) for writer in self._writers]
        check_int("max_iter", max_iter, 1)
        check_int("display_iter", display_iter, 1)
        self._max_iter, self._display_iter = max_iter, display_iter

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Write if the iteration ends a period or the run."""
        if is_due(storage.iter - 1, self._display_iter, self._max_iter) and is_first_rank():
            epochs = {name: kwargs[name] for name in ("epoch", "max_epoch") if name in kwargs}
            for writer, names in zip(self._writers, self._accepted, strict=True):
                writer.write(**{k: v for k, v in epochs.items() if names is None or k in names})

    def after_train(self, **kwargs: Any) -> None:
        """Close the writers."""
        for writer in self._writers if is_first_rank() else ():
            writer.close()


class IterationTimer(TrainHook):
    """Stores each step's seconds as ``time``; logs speed and total time at the end.

    Args:
        max_iter: Number of the last iteration.
        start_iter: Number of the first iteration, from 1.
        warmup_iter: Number of warm-up iterations.
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
        # a resumed run has finished some warm-up iterations
        ignored = warmup_iter - max(start_iter - 1, 0) if ignore_warmup_time else 0
        self._timer = StepTimer(max(ignored, 0))

    def before_train(self, **kwargs: Any) -> None:
        """Start the timer of the run."""
        self._timer.reset()

    def before_step(self, **kwargs: Any) -> None:
        """Start the timer of the step."""
        self._timer.start_step()

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store the seconds of the step."""
        seconds = self._timer.end_step()
        if seconds is not None:
            storage.put_scalars(time=seconds)

    def after_train(self, **kwargs: Any) -> None:
        """Log speed and total time."""
        for line in self._timer.summary():
            logging.getLogger("lightning_hooks").info(line)


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
            raise TypeError(f"scheduler must have step(), got {scheduler!r}")
        self._optimizer, self._scheduler = optimizer, scheduler
        self._group = reported_group(optimizer)

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store the rate of this iteration, then step the scheduler."""
        rate = self._optimizer.param_groups[self._group]["lr"]
        storage.put_scalar("lr", rate, smoothing_hint=False)
        self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state; empty for a scheduler without state."""
        state: Any = getattr(self._scheduler, "state_dict", dict)()
        return dict(state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler."""
        self._scheduler.load_state_dict(state_dict)


class PreciseBN(TrainHook):
    """Sets the statistics of BatchNorm layers from many batches, every period and at the end.

    Args:
        precise_bn_args: The model, an iterable of the model's inputs and, optionally, a device for
            the inputs: in any order, or as a dict of ``model``, ``data_loader`` and ``device``.
        period: Number of iterations between two updates; 0: only after the last iteration.
        num_iter: Number of batches for each update.
        max_iter: Number of the last iteration.
    """

    def __init__(self, precise_bn_args: Any, period: int, num_iter: int, max_iter: int) -> None:
        model, data_loader, device = _model_loader_device(precise_bn_args)
        check_int("period", period, 0)
        check_int("max_iter", max_iter, 1)
        self._period, self._max_iter = period, max_iter
        forward = None if device is None else functools.partial(_forward_on, device)
        self._update = StatisticsUpdate(model, data_loader, num_iter, forward)

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Update if the iteration ends a period or the run."""
        if is_due(storage.iter - 1, self._period, self._max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now."""
        self._update()


def _forward_on(device: torch.device, model: Any, batch: Any) -> Any:
    return model(move_data_to_device(batch, device))


def _model_loader_device(args: Any) -> tuple[torch.nn.Module, Iterable[Any], Any]:
    if isinstance(args, Mapping):
        args = [args.get("model"), args.get("data_loader"), args.get("device")]
    devices = [a for a in args if isinstance(a, (torch.device, str))]
    models = [a for a in args if isinstance(a, torch.nn.Module)]
    others = [a for a in args if a is not None and not isinstance(a, (torch.device, str))]
    loaders = [a for a in others if not any(a is model for model in models)]
    if len(models) != 1 or len(loaders) != 1 or not hasattr(loaders[0], "__iter__"):
        raise ValueError(
            f"precise_bn_args must be a model, a loader and perhaps a device, got {args!r}"
        )
    return models[0], loaders[0], torch.device(devices[0]) if devices else None


# -- writers ---------------------------------------------------------------------------------


class EventWriter(writers.EventWriter):
    """The base of writers: subclasses define ``write``, and ``close`` to release resources."""

    def write(self, **epochs: Any) -> None:
        """Write the new values.

        Args:
            epochs: ``epoch`` and ``max_epoch``, in a run counted in epochs.
        """
        super().write()


class JSONWriter(EventWriter, writers.SnapshotJSONWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.SnapshotJSONWriter`."""


class TensorboardXWriter(EventWriter, writers.TensorboardXWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.TensorboardXWriter`."""


class VisdomWriter(EventWriter, writers.VisdomWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.VisdomWriter`."""


class CommonMetricPrinter(EventWriter, writers.CommonMetricPrinter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.CommonMetricPrinter`."""
