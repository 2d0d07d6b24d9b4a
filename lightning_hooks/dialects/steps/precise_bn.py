"""``PreciseBN`` of detectron2 and cvpods, and ``StatisticsUpdate``, which Pet's uses too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from lightning_hooks.dialects.steps.base import is_due
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats
from lightning_hooks.utils.arguments import check_int

__all__ = ["PreciseBN", "StatisticsUpdate"]


class StatisticsUpdate:
    """Gives BatchNorm layers the statistics of a loader's next batches, each time it is called.

    Args:
        model: The model.
        data_loader: Iterable of the model's inputs; each call continues where the last one ended.
        num_iter: Number of batches for each call.
        forward: Function of model and batch that runs them; ``model(batch)`` by default.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        num_iter: int,
        forward: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        check_int("num_iter", num_iter, 1)
        self._model, self._data_loader, self._num_iter = model, data_loader, num_iter
        self._forward = forward
        self._batches: Iterator[Any] | None = None

    def __call__(self) -> None:
        """Update the statistics now."""
        if bn_layers(self._model):
            if self._batches is None:
                self._batches = iter(self._data_loader)
            update_bn_stats(self._model, self._batches, self._num_iter, forward=self._forward)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


class PreciseBN:
    """Gives BatchNorm layers the statistics of many batches, every period and after the last step.

    Args:
        period: Number of iterations between two updates; 0: only after the last.
        model: The model.
        data_loader: Iterable of the model's inputs; each update continues where the last one ended.
        num_iter: Number of batches for each update.

    See :func:`lightning_hooks.update_bn_stats` for what is computed.
    """

    trainer: Any

    def __init__(
        self, period: int, model: torch.nn.Module, data_loader: Iterable[Any], num_iter: int
    ) -> None:
        check_int("period", period, 0)
        self._period = period
        self._update = StatisticsUpdate(model, data_loader, num_iter)

    def after_step(self) -> None:
        """Update if the iteration ends a period."""
        if is_due(self.trainer.iter, self._period, self.trainer.max_iter):
            self.update_stats()

    def update_stats(self) -> None:
        """Update the statistics now."""
        self._update()
