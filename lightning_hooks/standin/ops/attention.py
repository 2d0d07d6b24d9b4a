"""Attention of Deformable DETR: each query samples a few points of feature maps of many sizes."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_hooks.standin.cnn.base_module import BaseModule
from lightning_hooks.standin.cnn.initializers import constant_init, xavier_init
from lightning_hooks.standin.cnn.registries import ATTENTION
from lightning_hooks.standin.utils.misc import deprecated_api_warning

__all__ = ["MultiScaleDeformableAttention", "multi_scale_deformable_attn_pytorch"]


def multi_scale_deformable_attn_pytorch(
    value: Tensor,
    value_spatial_shapes: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Return the weighted sums of samples of the maps.

    Args:
        value: The maps' pixels one after the other, of shape (n, pixels, heads, channels).
        value_spatial_shapes: Height and width of each map, of shape (levels, 2).
        sampling_locations: Points (x, y) in [0, 1]², of shape
            (n, queries, heads, levels, points, 2).
        attention_weights: Their weights, of shape (n, queries, heads, levels, points).

    Returns:
        A tensor (n, queries, heads * channels).
    """
    batch, _, heads, channels = value.shape
    queries = sampling_locations.size(1)
    shapes = [(int(height), int(width)) for height, width in value_spatial_shapes]
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


@ATTENTION.register_module()
class MultiScaleDeformableAttention(BaseModule):
    """The attention of Deformable DETR, with residual and dropout.

    Args:
        embed_dims: Channels of queries and values.
        num_heads: Heads, of ``embed_dims / num_heads`` channels each.
        num_levels: Feature maps.
        num_points: Points for each query, head and map.
        im2col_step: Not needed here.
        dropout: Rate of the dropout before the sum with the residual.
        batch_first: Tensors are (n, queries, channels), else (queries, n, channels).
        norm_cfg: Kept as an attribute.
        init_cfg: As in ``BaseModule``.
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 4,
        im2col_step: int = 64,
        dropout: float = 0.1,
        batch_first: bool = False,
        norm_cfg: dict[str, Any] | None = None,
        init_cfg: Any = None,
    ) -> None:
        super().__init__(init_cfg)
        if embed_dims % num_heads:
            raise ValueError(
                f"embed_dims must be divisible by num_heads, but got {embed_dims} and {num_heads}"
            )
        channels = embed_dims // num_heads
        if channels & (channels - 1):
            warnings.warn(
                "You'd better set embed_dims in MultiScaleDeformAttention to make the dimension of "
                f"each attention head a power of 2: it is {channels}. mmcv's CUDA operator is "
                "faster then.",
                stacklevel=2,
            )
        self.norm_cfg = norm_cfg
        self.dropout = nn.Dropout(dropout)
        self.batch_first = batch_first
        self.im2col_step = im2col_step
        self.embed_dims = embed_dims
        self.num_levels = num_levels
        self.num_heads = num_heads
        self.num_points = num_points
        points = num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims, points * 2)
        self.attention_weights = nn.Linear(embed_dims, points)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.init_weights()

    def init_weights(self) -> None:
        """Begin with points on a ray for each head, further away one by one, of equal weight."""
        constant_init(self.sampling_offsets, 0.0)
        device = self.sampling_offsets.weight.device
        heads = torch.arange(self.num_heads, dtype=torch.float32, device=device)
        angles = heads * (2.0 * math.pi / self.num_heads)
        rays = torch.stack([angles.cos(), angles.sin()], -1)
        rays = (rays / rays.abs().max(-1, keepdim=True)[0]).view(self.num_heads, 1, 1, 2)
        rays = rays.repeat(1, self.num_levels, self.num_points, 1)
        rays *= torch.arange(1, self.num_points + 1, device=device).view(1, 1, -1, 1)
        self.sampling_offsets.bias.data = rays.view(-1)
        constant_init(self.attention_weights, val=0.0, bias=0.0)
        xavier_init(self.value_proj, distribution="uniform", bias=0.0)
        xavier_init(self.output_proj, distribution="uniform", bias=0.0)
        self._is_init = True

    @deprecated_api_warning({"residual": "identity"}, cls_name="MultiScaleDeformableAttention")
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Attend to the maps.

        Args:
            query: Queries, of shape (queries, n, channels).
            key: Not read.
            value: The maps' pixels, of shape (pixels, n, channels); without them, the queries.
            identity: Added to the result; without it, the queries.
            query_pos: Added to the queries before.
            key_padding_mask: Pixels that count as zeros, of shape (n, pixels).
            reference_points: Points (x, y) of shape (n, queries, levels, 2), or boxes (x, y, w,
                h), of shape (n, queries, levels, 4), in [0, 1].
            spatial_shapes: Height and width of each map, of shape (levels, 2).
            level_start_index: The first pixel of each map: follows from ``spatial_shapes``.
            **kwargs: Not read.
        """
        assert reference_points is not None, "reference_points are missing"
        assert spatial_shapes is not None, "spatial_shapes are missing"
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        if not self.batch_first:
            query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
        pixels = int((spatial_shapes[:, 0] * spatial_shapes[:, 1]).sum())
        assert pixels == value.size(1), f"maps of {pixels} pixels, but {value.size(1)} values"
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.view(*value.shape[:2], self.num_heads, -1)
        shape = *query.shape[:2], self.num_heads, self.num_levels, self.num_points
        offsets = self.sampling_offsets(query).view(*shape, 2)
        weights = self.attention_weights(query).view(*shape[:3], -1).softmax(-1).view(shape)
        places = self._places(reference_points[:, :, None, :, None, :], offsets, spatial_shapes)
        output = multi_scale_deformable_attn_pytorch(
            value, spatial_shapes, places.type_as(value), weights.type_as(value)
        )
        output = self.output_proj(output)
        output = output if self.batch_first else output.permute(1, 0, 2)
        summed: Tensor = self.dropout(output) + identity
        return summed

    def _places(self, references: Tensor, offsets: Tensor, spatial_shapes: Tensor) -> Tensor:
        if references.shape[-1] == 2:
            return references + offsets / spatial_shapes.flip(-1)[None, None, None, :, None, :]
        if references.shape[-1] == 4:
            return references[..., :2] + offsets / self.num_points * references[..., 2:] * 0.5
        raise ValueError(
            f"Last dim of reference_points must be 2 or 4, but get {references.shape[-1]} instead."
        )
