"""Learning rates, momenta and memory under the names at which loggers write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_hooks.engine.runner.optimizers import first_group

__all__ = ["as_tags", "by_group", "peak_memory"]


def as_tags(tag: str, runner: Any, read: Callable[[], Any]) -> dict[str, float]:
    """Return what ``read()`` returns for the first group, of each optimizer if there are several.

    ``learning_rate``; with several optimizers ``learning_rate/generator``.
    """
    value = None if runner.optimizer is None else first_group(read())
    if isinstance(value, dict):
        return {f"{tag}/{name}": each for name, each in value.items()}
    return {} if value is None else {tag: value}


def by_group(tag: str, runner: Any, read: Callable[[], Any]) -> dict[str, float]:
    """Return what ``read()`` returns for every parameter group, by the group's name or number.

    ``learning_rate/backbone``, ``learning_rate/1``; with several optimizers the name of the
    optimizer comes before it: ``learning_rate/generator/0``.
    """
    optimizer = runner.optimizer
    if optimizer is None:
        return {}
    found = read()
    if isinstance(optimizer, dict):
        parts = [(f"{tag}/{key}/", each, found[key]) for key, each in optimizer.items()]
    else:
        parts = [(f"{tag}/", optimizer, found)]
    return {
        f"{prefix}{group.get('name', index)}": value
        for prefix, each, of_groups in parts
        for index, (group, value) in enumerate(zip(each.param_groups, of_groups, strict=True))
    }


def peak_memory(runner: Any) -> int | None:
    """Return the most that torch has allocated on the module's device, in MiB.

    With several ranks it is their maximum, so all ranks must call this. None without CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # without a collective nothing is read from the device
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
