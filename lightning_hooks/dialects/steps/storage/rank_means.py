"""A step's scalars over the ranks, as detectron2 stores them: means."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["RankMeans"]


class RankMeans:
    """Replaces a step's scalars by their means over all ranks; nothing is read from the device.

    The names are the union of those that the ranks have in the first step. A rank without one of
    them in a later step is left out of its mean. Other names of later steps are not averaged.

    Args:
        device: Device of the communication.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._names: list[str] | None = None

    @torch.no_grad()
    def __call__(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalars, with means if there are several ranks."""
        if not _has_ranks():
            return dict(scalars)
        if self._names is None:
            self._names = _all_names(scalars)
        dtype = torch.float32 if self._device.type == "mps" else torch.float64
        sums_counts = torch.zeros(2, len(self._names), dtype=dtype, device=self._device)
        for column, name in enumerate(self._names):
            if name in scalars:
                sums_counts[0, column] = scalars[name]
                sums_counts[1, column] = 1
        dist.all_reduce(sums_counts)
        means = dict(zip(self._names, (sums_counts[0] / sums_counts[1]).unbind(), strict=True))
        return {name: means.get(name, value) for name, value in scalars.items()}


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _all_names(scalars: Mapping[str, Any]) -> list[str]:
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, list(scalars))
    return list(dict.fromkeys(itertools.chain(*names)))
