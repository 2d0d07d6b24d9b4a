"""Pet's training hooks and writers."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.dialects.pet.tools import (
    EventStorage,
    Timer,
    get_bn_modules,
    logging_rank,
    update_bn_stats,
)
from lightning_hooks.dialects.steps import writers
from lightning_hooks.dialects.steps.hooks import (
    check_writers,
    is_due,
    is_first_rank,
    reported_group,
    speed_lines,
)
from lightning_hooks.utils.arguments import check_int

__all__ = [
    "IterationTimer",
    "JSONWriter",
    "LRScheduler",
    "PeriodicWriter",
    "PreciseBN",
    "TrainHook",
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
    """Calls writers every ``display_iter`` iterations and before the last; closes the writers.

    In a run counted in epochs the hook also stores ``epoch``.

    Args:
        writers: Objects with ``write()`` and ``close()``, used on rank 0 only. ``epoch`` and
            ``max_epoch`` are passed to a ``write`` with these keywords.
        max_iter: Number of iterations of the run; in a run counted in epochs, of an epoch.
        display_iter: Number of iterations between two writes.

    As in Pet, iterations count from 1, and the writers are called where ``storage.iter + 1`` is a
    multiple of ``display_iter`` or ``storage.iter`` is the last iteration but one.
    """

    def __init__(self, writers: Sequence[Any], max_iter: int, display_iter: int = 20) -> None:
        self.writers = check_writers(writers)
        check_int("max_iter", max_iter, 1)
        check_int("display_iter", display_iter, 1)
        self.max_iter, self.display_iter = max_iter, display_iter

    def after_step(
        self, storage: Any, epoch: int | None = None, max_epoch: int | None = None, **kwargs: Any
    ) -> None:
        """Write if the iteration ends a period or the run."""
        if epoch is not None:
            storage.put_scalar("epoch", epoch, smoothing_hint=False)
        if is_due(storage.iter, self.display_iter, self.max_iter * (max_epoch or 1)):
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

    ``step_timer`` is the :class:`~lightning_hooks.dialects.pet.tools.Timer` of the step.

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
        self._all_steps = Timer()
        self._all_steps.pause()

    def before_step(self, **kwargs: Any) -> None:
        """Start the timer of the step."""
        self.step_timer.reset()
        self._all_steps.resume()

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store the seconds of the step."""
        if self.ignore_warmup_time and self._counted(storage) < 0:
            self._began = time.perf_counter()
            self._all_steps.reset()
        else:
            storage.put_scalars(time=self.step_timer.seconds())
        self._all_steps.pause()

    def after_train(self, storage: Any, **kwargs: Any) -> None:
        """Log speed and total time."""
        total = time.perf_counter() - self._began
        for line in speed_lines(self._counted(storage), self._all_steps.seconds(), total):
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
            raise TypeError(f"scheduler must have step(), got {scheduler!r}")
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
        precise_bn_args: The model, an iterable of the model's inputs and, optionally, a device for
            the inputs: in any order, or as a dict of ``model``, ``data_loader`` and ``device``.
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
            self.data_iter = iter(self.data_loader)
        with EventStorage():
            update_bn_stats(self.model, self.data_iter, self.device, self.num_iter)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "data_iter": None}


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


class JSONWriter(writers.SnapshotJSONWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.SnapshotJSONWriter`.

    As in Pet, ``iteration`` in a line is ``storage.iter + 1``.
    """

    _first_iteration = 1
