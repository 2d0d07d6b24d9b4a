"""Pet's base of hooks, and its hooks of training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from lightning_hooks.dialects.steps.hooks import at_least, is_due
from lightning_hooks.dialects.steps.lr import reported_group
from lightning_hooks.dialects.steps.timer import StepTimer
from lightning_hooks.engine.usage_errors import HostedOnly
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats

__all__ = ["IterationTimer", "LRScheduler", "PeriodicWriter", "PreciseBN", "TrainHook"]


class TrainHook(HostedOnly):
    """The base of Pet's hooks: override the points that you need."""

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Before the first iteration."""

    def after_train(self, *args: Any, **kwargs: Any) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self, *args: Any, **kwargs: Any) -> None:
        """Before each iteration."""

    def after_step(self, *args: Any, **kwargs: Any) -> None:
        """After each iteration; ``storage.iter`` is its number, from 1."""


def _is_first_rank() -> bool:
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not distributed or torch.distributed.get_rank() == 0


class PeriodicWriter(TrainHook):
    """Has writers write every ``display_iter`` iterations, after the last one and at the end.

    Args:
        writers: Objects with ``write()`` and ``close()``; they are used on rank 0.
        max_iter: The last iteration.
        display_iter: Iterations from one writing to the next.
    """

    def __init__(self, writers: Sequence[Any], max_iter: int, display_iter: int = 20) -> None:
        for writer in writers:
            if not callable(getattr(writer, "write", None)):
                raise TypeError(f"writers must be EventWriters, got {writer!r}")
        self._writers = list(writers)
        self._max_iter = at_least("max_iter", max_iter, 1)
        self._display_iter = at_least("display_iter", display_iter, 1)

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Write if it is time to."""
        if is_due(storage.iter - 1, self._display_iter, self._max_iter) and _is_first_rank():
            for writer in self._writers:
                writer.write()

    def after_train(self, **kwargs: Any) -> None:
        """Close the writers."""
        for writer in self._writers if _is_first_rank() else ():
            writer.close()


class IterationTimer(TrainHook):
    """Puts each step's seconds into the storage as ``time``; tells speed and total at the end.

    Args:
        max_iter: The last iteration.
        start_iter: The first iteration, from 1.
        warmup_iter: How many iterations at the beginning are special.
        ignore_warmup_time: Whether those before the ``warmup_iter``-th are left out.
    """

    def __init__(
        self,
        max_iter: int,
        start_iter: int = 1,
        warmup_iter: int = 3,
        ignore_warmup_time: bool = False,
    ) -> None:
        self.max_iter = at_least("max_iter", max_iter, 1)
        self.start_iter = at_least("start_iter", start_iter, 0)
        at_least("warmup_iter", warmup_iter, 0)
        # a run that goes on has done some of them already
        left_out = warmup_iter - max(start_iter - 1, 0) if ignore_warmup_time else 0
        self._timer = StepTimer(max(left_out, 0))

    def before_train(self, **kwargs: Any) -> None:
        """Start the clock."""
        self._timer.reset()

    def before_step(self, **kwargs: Any) -> None:
        """Start the step's clock."""
        self._timer.start_step()

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store how long the step took."""
        seconds = self._timer.end_step()
        if seconds is not None:
            storage.put_scalars(time=seconds)

    def after_train(self, **kwargs: Any) -> None:
        """Tell the speed."""
        for line in self._timer.summary():
            logging.getLogger("lightning_hooks").info(line)


class LRScheduler(TrainHook):
    """Stores ``lr`` after every iteration, and steps the scheduler.

    The rate is the one that the iteration had, of the group with most parameters; where each
    group has a single one, the most common rate.

    Args:
        optimizer: The optimizer.
        scheduler: An object with ``step()``.
    """

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        if not callable(getattr(scheduler, "step", None)):
            raise TypeError(f"scheduler must have step(), got {scheduler!r}")
        self._optimizer, self._scheduler = optimizer, scheduler
        self._group = reported_group(optimizer)

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Store this iteration's rate, and set the next one's."""
        rate = self._optimizer.param_groups[self._group]["lr"]
        storage.put_scalar("lr", rate, smoothing_hint=False)
        self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, if it has one."""
        state: Any = getattr(self._scheduler, "state_dict", dict)()
        return dict(state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the scheduler its state back."""
        self._scheduler.load_state_dict(state_dict)


class PreciseBN(TrainHook):
    """Gives BatchNorm layers the statistics of many batches, every so many iterations and last.

    Args:
        precise_bn_args: The model, what yields its inputs and, if they are to be moved, the device:
            in any order, or as a dict of ``model``, ``data_loader`` and ``device``.
        period: Iterations from one update to the next; 0: only after the last.
        num_iter: Batches of each update.
        max_iter: The last iteration.
    """

    def __init__(self, precise_bn_args: Any, period: int, num_iter: int, max_iter: int) -> None:
        self._model, self._data_loader, self._device = _model_loader_device(precise_bn_args)
        self._period = at_least("period", period, 0)
        self._num_iter = at_least("num_iter", num_iter, 1)
        self._max_iter = at_least("max_iter", max_iter, 1)
        self._batches: Iterator[Any] | None = None

    def after_step(self, storage: Any, **kwargs: Any) -> None:
        """Update if it is time to."""
        if is_due(storage.iter - 1, self._period, self._max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now."""
        if not bn_layers(self._model):
            return
        if self._batches is None:
            self._batches = iter(self._data_loader)
        update_bn_stats(self._model, self._batches, self._num_iter, forward=self._forward)

    def _forward(self, model: Any, batch: Any) -> Any:
        if self._device is not None:
            batch = move_data_to_device(batch, self._device)
        return model(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


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
