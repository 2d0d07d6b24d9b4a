"""Run layers on tensors without elements, as mmcv's wrapped layers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["NewEmptyTensorOp", "obsolete_torch_version"]


def obsolete_torch_version(torch_version: Any, version_threshold: tuple[int, ...]) -> bool:
    """Whether torch is so old that a layer fails on an empty tensor.

    >>> obsolete_torch_version((2, 6), (1, 9)), obsolete_torch_version((1, 9), (1, 9))
    (False, True)
    """
    return bool(torch_version == "parrots" or torch_version <= version_threshold)


class NewEmptyTensorOp(torch.autograd.Function):
    """An empty tensor of another shape that gradients go through."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, new_shape: Sequence[int]) -> torch.Tensor:
        """Return it."""
        ctx.shape = x.shape
        return x.new_empty(tuple(new_shape))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient, as empty, in the shape of what was given."""
        return NewEmptyTensorOp.apply(grad, ctx.shape), None  # type: ignore[no-untyped-call]
