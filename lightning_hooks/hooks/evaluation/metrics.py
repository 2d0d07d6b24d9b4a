"""Compute torchmetrics metrics, and make scores plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torchmetrics import Metric, MetricCollection

from lightning_hooks.utils.plain_types import plain

__all__ = ["measure", "plain_values"]


def measure(
    metric: Metric | MetricCollection,
    pairs: Iterable[tuple[Any, Any]],
    device: torch.device,
    *,
    over_ranks: bool,
) -> dict[str, Any]:
    """Return the metric's values over ``(prediction, target)`` batches, by name.

    A single metric that has one value is named as its class.

    Args:
        metric: It is reset before and after.
        pairs: The batches.
        device: Where the metric computes.
        over_ranks: Whether to compute over the batches of all ranks.
    """
    metric.to(device)
    metric.reset()
    for prediction, target in pairs:
        metric.update(prediction, target)
    parts = [part for part in metric.modules() if isinstance(part, Metric)]
    before = [part.distributed_available_fn for part in parts]
    try:
        for part in parts if not over_ranks else ():
            part.distributed_available_fn = lambda: False
        values = metric.compute()
    finally:
        for part, own in zip(parts, before, strict=True):
            part.distributed_available_fn = own
        metric.reset()
    named = values if isinstance(values, Mapping) else {type(metric).__name__: values}
    return plain_values(named)


def plain_values(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores with tensors and numpy's types made numbers and lists.

    >>> plain_values({"acc": torch.tensor(0.5), "per_class": torch.tensor([1, 0]), "best": "cat"})
    {'acc': 0.5, 'per_class': [1, 0], 'best': 'cat'}
    """
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else plain(value)
        for name, value in scores.items()
    }
