"""Hold many small tensors as a few: to write and read a tensor of a file takes 0.1 ms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["concatenated", "concatenation", "separated"]


def concatenated(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Return the values of tensors as one tensor for each type and device, with names and lengths.

    The tensors stay on their device. The order of the names is kept among tensors of a type.

    >>> concatenated({"loss": torch.ones(2), "acc": torch.tensor(0.5)})
    [{'names': ['loss', 'acc'], 'lengths': [2, 1], 'values': tensor([1.0000, 1.0000, 0.5000])}]
    """
    groups: dict[Any, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        groups.setdefault((tensor.dtype, tensor.device), {})[name] = tensor.detach().flatten()
    return [
        {
            "names": [*group],
            "lengths": [*map(len, group.values())],
            "values": torch.cat([*group.values()]),
        }
        for group in groups.values()
    ]


def separated(groups: Iterable[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Return the one-dimensional tensors of a :func:`concatenated` by name, in memory of their own.

    >>> separated(concatenated({"loss": torch.ones(2), "acc": torch.tensor(0.5)}))
    {'loss': tensor([1., 1.]), 'acc': tensor([0.5000])}
    """
    return {
        name: values.clone()  # torch refuses to change a view of several in place
        for group in groups
        for name, values in zip(
            group["names"], group["values"].split(group["lengths"]), strict=True
        )
    }


def concatenation(value: Any) -> bool:
    """Return whether a value, read from a file, is a result of :func:`concatenated`."""
    return isinstance(value, list) and all(map(_is_group, value))


def _is_group(value: Any) -> bool:
    match value:
        case {"names": list(names), "lengths": list(lengths), "values": torch.Tensor(ndim=1)}:
            are_names = all(isinstance(name, str) for name in names)
            are_lengths = all(type(length) is int and length >= 0 for length in lengths)
            is_whole = are_lengths and sum(lengths) == len(value["values"])
            return are_names and is_whole and len(names) == len(lengths)
    return False
