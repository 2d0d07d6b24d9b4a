"""Norms of gradients over all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.utils.dtensors import is_sharded, largest_of_ranks, local_part, rows_of

__all__ = [
    "by_mesh",
    "combine_norms",
    "full_norm",
    "largest_magnitude",
    "over_group",
    "total_norm",
    "unit_norms",
]


def total_norm(gradients: Sequence[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """Return the norm of all gradients together, all shards included.

    >>> total_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
    tensor(5.)
    """
    norms = []
    for some in by_mesh(gradients).values():
        found = [one.to(some[0].device) for one in torch._foreach_norm(some, norm_type)]
        norms.append(full_norm(torch.linalg.vector_norm(torch.stack(found), norm_type)))
    return combine_norms(norms, norm_type)


def largest_magnitude(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude of all numbers, all shards included.

    >>> largest_magnitude([torch.tensor([3.0]), torch.tensor([[-4.0]])])
    tensor(4.)
    """
    found = []
    for mesh, some in by_mesh(tensors).items():
        parts = [part for part in map(local_part, some) if part.numel()]  # a rank may have none
        numbers = _extremes(parts) or [local_part(some[0]).new_zeros(())]
        most = torch.stack([number.to(numbers[0]) for number in numbers]).abs().amax()
        found.append(most if mesh is None else largest_of_ranks(most, mesh))
    return combine_norms(found, float("inf"))


def _extremes(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return some of the numbers, the one of largest magnitude among them."""
    if not tensors:
        return ()
    if tensors[0].device.type == "cpu":  # where the norm is slow
        return [number for tensor in tensors for number in torch.aminmax(tensor)]
    return torch._foreach_norm(tensors, float("inf"))


def unit_norms(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm of each row (of a shard those of its rows); of a vector its norm."""
    dims = tuple(range(1, tensor.ndim)) or None
    norms = torch.linalg.vector_norm(tensor.detach(), dim=dims, keepdim=tensor.ndim > 1)
    return rows_of(norms, tensor)


def by_mesh(gradients: Sequence[torch.Tensor]) -> dict[Any, list[torch.Tensor]]:
    """Group the gradients that can be reduced together: plain ones, those of each device mesh."""
    groups: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        groups[getattr(gradient, "device_mesh", None)].append(gradient)
    return groups


def full_norm(norm: torch.Tensor) -> torch.Tensor:
    """Return a norm over all ranks, each of which has a part of a DTensor's sum; collective."""
    if not is_sharded(norm):
        return norm
    full: torch.Tensor = norm.full_tensor()  # type: ignore[attr-defined]
    return full


def over_group(norm: torch.Tensor, norm_type: float, group: Any) -> torch.Tensor:
    """Return the norm of a tensor whose parts are on the ranks of a group; collective."""
    is_max = norm_type == float("inf")
    found = norm if is_max else norm**norm_type
    op = torch.distributed.ReduceOp.MAX if is_max else torch.distributed.ReduceOp.SUM
    torch.distributed.all_reduce(found, op=op, group=group)
    return found if is_max else found ** (1.0 / norm_type)


def combine_norms(norms: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """Return the norm of all numbers from the norms of their parts."""
    if not norms:
        return torch.zeros(())
    if len(norms) == 1:
        return norms[0]
    stacked = torch.stack([norm.to(norms[0]) for norm in norms])
    norm: torch.Tensor = torch.linalg.vector_norm(stacked, norm_type)
    return norm
