"""Batch normalization with the statistics of all processes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lightning_hooks.standin.cnn.norm import NORM_LAYERS

__all__ = ["SyncBatchNorm"]


class _Normalize(Function):
    """Normalize by the statistics of all processes; return the mean, variance and update too.

    The statistics' all-reduces are part of it, so the gradient is written out.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, layer: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        group, size, rows = layer.group, layer.group_size, input.size(0)
        features = _flat(input)
        share = rows if layer.stats_mode == "N" else 1
        mean = features.mean((0, 2)) if rows else features.new_zeros(features.size(1))
        sums = torch.cat([mean, mean.new_ones(1) if rows else mean.new_zeros(1)]) * share
        _sum_of_all(sums, group, size)
        total = sums[-1]
        parts = total.clamp(min=1) if layer.stats_mode == "N" else size
        mean = sums[:-1] / parts
        centred = features - mean[:, None]
        var = centred.square().mean((0, 2)) * share if rows else torch.zeros_like(mean)
        var = _sum_of_all(var, group, size) / parts
        std = (var + layer.eps).sqrt()
        norm = centred / std[:, None]
        ctx.save_for_backward(norm, std, weight)
        ctx.group, ctx.size, ctx.shape = group, size, input.shape
        output = norm
        if weight is not None and bias is not None:
            output = norm * weight[:, None] + bias[:, None]
        update = total.clamp(max=1)
        ctx.mark_non_differentiable(mean, var, update)
        return output.view(input.shape).to(input.dtype), mean, var, update

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        norm, std, weight = ctx.saved_tensors
        slopes = _flat(grad)
        # of an empty batch the sums are 0
        sums = torch.stack([(slopes * norm).sum((0, 2)), slopes.sum((0, 2))])
        sums = _sum_of_all(sums, ctx.group, ctx.size) / ctx.size
        pixels = max(slopes.size(0) * slopes.size(2), 1)
        inner = slopes - (sums[0, :, None] * norm + sums[1, :, None]) / pixels
        scale = 1 / std if weight is None else weight / std
        of_input = (inner * scale[:, None]).view(ctx.shape).to(grad.dtype)
        return of_input, *(sums if weight is not None else (None, None)), None


def _flat(input: Tensor) -> Tensor:
    """Return a tensor as (n, c, positions), in single precision at least."""
    positions = math.prod(input.shape[2:])
    precise = input.to(torch.promote_types(input.dtype, torch.float32))
    return precise.reshape(input.size(0), input.size(1), positions)


def _sum_of_all(values: Tensor, group: Any, size: int) -> Tensor:
    if size > 1:
        dist.all_reduce(values, group=group)
    return values


@NORM_LAYERS.register_module(name="MMSyncBN")
class SyncBatchNorm(nn.Module):
    """Batch normalization with the mean and variance of all processes.

    Note: Departures from mmcv: without an initialized process group it normalizes by the batch of
    this process, where mmcv raises an error; any float dtype is accepted; ``affine=False`` works.

    Args:
        num_features: Channels of the input.
        eps: Added to the variance.
        momentum: Share of the new statistics in the running ones; None averages them all.
        affine: Whether there are a weight and a bias.
        track_running_stats: Whether there are running statistics, for evaluation.
        group: The processes to synchronize; None takes all.
        stats_mode: ``"default"`` gives each process the same share, ``"N"`` one by its batch
            size, which allows empty batches.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        group: Any = None,
        stats_mode: str = "default",
    ) -> None:
        super().__init__()
        assert stats_mode in ("default", "N"), (
            f'"stats_mode" only accepts "default" and "N", got "{stats_mode}"'
        )
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.group = group
        self.stats_mode = stats_mode
        self.register_parameter(
            "weight", nn.Parameter(torch.empty(num_features)) if affine else None
        )
        self.register_parameter("bias", nn.Parameter(torch.empty(num_features)) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(num_features) if tracked else None)
        self.register_buffer("running_var", torch.ones(num_features) if tracked else None)
        count = torch.tensor(0, dtype=torch.long)
        self.register_buffer("num_batches_tracked", count if tracked else None)
        self.reset_parameters()

    @property
    def group_size(self) -> int:
        """Return the number of processes that are synchronized."""
        ready = dist.is_available() and dist.is_initialized()
        return dist.get_world_size(self.group) if ready else 1

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Draw the weight from [0, 1), as mmcv does; set the bias to 0."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            nn.init.uniform_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize a tensor (n, c, ...)."""
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input, got {input.dim()}D input")
        if not (self.training or not self.track_running_stats):
            statistics = self.running_mean, self.running_var, self.weight, self.bias
            return functional.batch_norm(input, *statistics, False, 0.0, self.eps)
        momentum = self.momentum or 0.0
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        output, mean, var, update = _Normalize.apply(input, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None:
            count = input.numel() // max(input.size(1), 1) * self.group_size
            share = update * momentum
            unbiased = var * count / (count - 1) if count > 1 else var
            self.running_mean.copy_(share * mean + (1 - share) * self.running_mean)
            self.running_var.copy_(share * unbiased + (1 - share) * self.running_var)
        return output  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.num_features}, eps={self.eps}, "
            f"momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, "
            f"group_size={self.group_size},stats_mode={self.stats_mode})"
        )
