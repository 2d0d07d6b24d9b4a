"""``RankMeans``: the means of a step's scalars over the ranks, as detectron2 stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["RankMeans"]


class RankMeans:
    """Replaces a step's scalars by their means over all ranks; nothing is read from the device.

    The ranks agree on the names in the first step: those that any of them has. A rank that lacks
    one in a step does not count for its mean there. Names that come up later stay each rank's own.

    Args:
        device: Where the ranks talk.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._names: list[str] | None = None

    @torch.no_grad()
    def __call__(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalars, with means where there are several ranks."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return dict(scalars)
        if self._names is None:
            self._names = _names_of_all(scalars)
        wide = torch.float32 if self._device.type == "mps" else torch.float64
        rows = torch.zeros(2, len(self._names), dtype=wide, device=self._device)  # sums, counts
        for column, name in enumerate(self._names):
            if name in scalars:
                rows[0, column] = scalars[name]
                rows[1, column] = 1
        dist.all_reduce(rows)
        means = dict(zip(self._names, (rows[0] / rows[1]).unbind(), strict=True))
        return {name: means.get(name, value) for name, value in scalars.items()}


def _names_of_all(scalars: Mapping[str, Any]) -> list[str]:
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, list(scalars))
    return list(dict.fromkeys(name for some in names for name in some))
