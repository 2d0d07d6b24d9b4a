"""Attention of Deformable DETR: each query samples a few points of feature maps of many sizes.

mmcv computes it in plain torch where there is no GPU; here this is done everywhere.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from lightning_hooks.standin.ops.backend import gradients

__all__ = ["ms_deform_attn_backward", "ms_deform_attn_forward"]


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Return the weighted sums (n, queries, heads * channels) of samples of the maps.

    Args:
        value: The maps' pixels one after the other, of shape (n, pixels, heads, channels).
        value_spatial_shapes: Height and width of each map, of shape (levels, 2).
        value_level_start_index: Follows from the shapes.
        sampling_locations: Points (x, y) in [0, 1]², of shape
            (n, queries, heads, levels, points, 2).
        attention_weights: Their weights, of shape (n, queries, heads, levels, points).
        im2col_step: Of no consequence.
    """
    return _attend(value, sampling_locations, attention_weights, value_spatial_shapes)


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Fill in the gradients."""
    attend = partial(_attend, value_spatial_shapes=value_spatial_shapes)
    inputs = value, sampling_locations, attention_weights
    found = gradients(attend, inputs, grad_output)
    for gradient, filled in zip(
        found, (grad_value, grad_sampling_loc, grad_attn_weight), strict=True
    ):
        filled.copy_(gradient)


def _attend(
    value: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    value_spatial_shapes: Tensor,
) -> Tensor:
    batch, _, heads, channels = value.shape
    queries = sampling_locations.size(1)
    shapes = [(int(height), int(width)) for height, width in value_spatial_shapes.tolist()]
    grids = (2 * sampling_locations - 1).transpose(1, 2).flatten(0, 1)
    levels = value.split_with_sizes([height * width for height, width in shapes], dim=1)
    samples = []
    for level, (pixels, shape) in enumerate(zip(levels, shapes, strict=True)):
        maps = pixels.permute(0, 2, 3, 1).reshape(batch * heads, channels, *shape)
        # (n * heads, channels, queries, points); outside of the map there are zeros
        samples.append(functional.grid_sample(maps, grids[:, :, level], align_corners=False))
    weights = attention_weights.transpose(1, 2).reshape(batch * heads, 1, queries, -1)
    summed = (torch.cat(samples, -1) * weights).sum(-1)
    return summed.view(batch, heads * channels, queries).transpose(1, 2).contiguous()
