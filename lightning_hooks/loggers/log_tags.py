"""What the tags of a log are made of: numbers, and the first group of each optimizer.

How much memory a device has needed at most.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["by_group", "is_scalar", "named", "of_first_group", "peak_memory"]


def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
    """Whether a value is a number, or an array or tensor of one.

    >>> is_scalar(torch.tensor(0.5)), is_scalar(np.ones(2)), is_scalar("cat")
    (True, False, False)
    """
    if isinstance(val, numbers.Number):
        return True
    if isinstance(val, np.ndarray):
        return include_np and val.ndim == 0
    return include_torch and isinstance(val, torch.Tensor) and val.numel() == 1


def of_first_group(runner: Any, read: Callable[[], Any]) -> Any:
    """Return what ``read()`` tells of the first parameter group.

    Where there are several optimizers it is a dict of that by name; None where there is none.
    """
    if runner.optimizer is None:
        return None
    values = read()
    if isinstance(values, dict):
        return {name: of_groups[0] for name, of_groups in values.items()}
    return values[0] if values else None


def named(tag: str, value: Any) -> dict[str, float]:
    """Return what :func:`of_first_group` found as tags.

    >>> named("lr", 0.1), named("lr", {"a": 0.1}), named("lr", None)
    ({'lr': 0.1}, {'lr/a': 0.1}, {})
    """
    if isinstance(value, dict):
        return {f"{tag}/{name}": each for name, each in value.items()}
    return {} if value is None else {tag: value}


def by_group(tag: str, runner: Any, read: Callable[[], Any]) -> dict[str, float]:
    """Return what ``read()`` tells of every parameter group, by the group's name or number.

    ``learning_rate/backbone``, ``learning_rate/1``; with several optimizers the name of the
    optimizer comes before it: ``learning_rate/generator/0``.
    """
    if runner.optimizer is None:
        return {}
    optimizers = runner.optimizer
    if not isinstance(optimizers, dict):
        optimizers = {"": optimizers}
    values = read()
    tags = {}
    for key, optimizer in optimizers.items():
        prefix = f"{tag}/{key}/" if key else f"{tag}/"
        for index, (group, value) in enumerate(
            zip(optimizer.param_groups, values[key] if key else values, strict=True)
        ):
            tags[f"{prefix}{group.get('name', index)}"] = value
    return tags


def peak_memory(runner: Any) -> int | None:
    """Return the most that torch has allocated on the module's device, in MiB.

    Of several ranks it is the highest, so all must ask. None where there is no CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # the host knows it
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
