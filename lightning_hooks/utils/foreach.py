"""Operations on many tensors at once: a few kernels for any number of tensors.

torch's optimizers and clipping use the same kernels; torch has no public names for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import _foreach_clamp_max_ as clamp_max_
from torch import _foreach_clamp_min_ as clamp_min_
from torch import _foreach_copy_ as copy_
from torch import _foreach_div_ as div_
from torch import _foreach_mul_ as mul_
from torch import _foreach_norm as norm
from torch import _fused_sgd_ as fused_sgd_
from torch._C import _group_tensors_by_device_and_dtype

__all__ = [
    "by_type",
    "clamp_max_",
    "clamp_min_",
    "copy_",
    "copy_flat_",
    "div_",
    "flat",
    "fused_sgd_",
    "mul_",
    "norm",
]


def by_type(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group tensors of the same device and type; the order of the groups is that of all ranks.

    >>> [len(group) for group in by_type([torch.ones(1), torch.ones(1).int(), torch.ones(2)])]
    [2, 1]
    """
    present = [*tensors]
    # torch's stub allows None in a list, which torch passes over
    groups: dict[Any, Any] = (
        _group_tensors_by_device_and_dtype([present], False) if present else {}  # type: ignore[list-item]
    )
    return [groups[key][0][0] for key in (sorted(groups, key=str) if len(groups) > 1 else groups)]


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the values of tensors of a type in one row, as a copy."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def copy_flat_(tensors: list[torch.Tensor], values: torch.Tensor) -> None:
    """Copy the values of a row, see :func:`flat`, to the tensors.

    >>> weights = [torch.zeros(2), torch.zeros(1, 1)]
    >>> copy_flat_(weights, torch.tensor([1.0, 2.0, 3.0]))
    >>> weights
    [tensor([1., 2.]), tensor([[3.]])]
    """
    pieces = torch.split(values, [tensor.numel() for tensor in tensors])
    copy_(
        tensors, [piece.view(tensor.shape) for tensor, piece in zip(tensors, pieces, strict=True)]
    )
