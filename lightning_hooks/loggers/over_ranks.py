"""``mean_over_ranks``: the averages of all ranks as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import distributed

__all__ = ["mean_over_ranks"]


def mean_over_ranks(averages: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of each value over the ranks that have it; one collective.

    >>> mean_over_ranks({"loss": 0.5})  # on one rank
    {'loss': 0.5}
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return dict(averages)
    of_ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(of_ranks, dict(averages))
    names = dict.fromkeys(name for one in of_ranks for name in one)
    found = {name: [one[name] for one in of_ranks if name in one] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}
