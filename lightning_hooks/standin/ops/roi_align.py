"""RoIAlign: pool regions of feature maps, by bilinear samples on a regular grid in each bin.

Each output is a weighted sum of pixels, which ``embedding_bag`` computes from a table of pixels
without an intermediate of all samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.utils import _pair

from lightning_hooks.standin.ops.backend import torchvision_ops
from lightning_hooks.standin.utils.misc import deprecated_api_warning

__all__ = ["RoIAlign", "RoIAlignRotated", "roi_align", "roi_align_rotated"]

_PIXELS_AT_ONCE = 1 << 22


def roi_align(
    input: Tensor,
    rois: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: str = "avg",
    aligned: bool = True,
) -> Tensor:
    """Pool each region to a fixed size; the gradient goes to the input only.

    Args:
        input: Feature maps, of shape (n, c, h, w).
        rois: Regions (index into n, x1, y1, x2, y2), of shape (k, 5).
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
        sampling_ratio: Samples per bin along each axis; 0 takes one per pixel.
        pool_mode: ``"avg"`` or ``"max"`` of a bin's samples.
        aligned: Pixels' centres are at half coordinates. If False, as in early versions, they are
            at whole ones, and regions are at least one pixel wide.

    Returns:
        The pooled regions, of shape (k, c, height, width). A bin without a sample is 0.
    """
    assert pool_mode in ("max", "avg"), f'pool_mode must be "max" or "avg", got {pool_mode!r}'
    assert rois.size(1) == 5, "rois must be (index, x1, y1, x2, y2)"
    size = _pair(output_size)
    compiled = torchvision_ops() if pool_mode == "avg" and input.dtype == rois.dtype else None
    if compiled is not None:
        pooled: Tensor = compiled.roi_align(
            input, rois.detach(), size, spatial_scale, sampling_ratio, aligned
        )
        return pooled
    corners = rois.detach()[:, 1:].to(_precise(input)) * spatial_scale - (0.5 if aligned else 0.0)
    start, sides = corners[:, :2], corners[:, 2:] - corners[:, :2]
    regions = torch.cat([start, sides if aligned else sides.clamp(min=1)], 1)
    return _pool(input, rois[:, 0], regions, size, sampling_ratio, pool_mode)


def roi_align_rotated(
    input: Tensor,
    rois: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> Tensor:
    """Pool each rotated region to a fixed size; the gradient goes to the input only.

    Args:
        input: Feature maps, of shape (n, c, h, w).
        rois: Regions (index into n, centre x, centre y, width, height, angle in radian).
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
        sampling_ratio: Samples per bin along each axis; 0 takes one per pixel.
        aligned: As in :func:`roi_align`.
        clockwise: Whether a positive angle turns a region clockwise in the image.
    """
    scaled = rois.detach()[:, 1:5].to(_precise(input)) * spatial_scale
    centre, sides = scaled[:, :2] - (0.5 if aligned else 0.0), scaled[:, 2:]
    sides = sides if aligned else sides.clamp(min=1)
    angle = rois.detach()[:, 5].to(sides)
    turned = torch.cat([-sides / 2, sides], 1), centre, -angle if clockwise else angle
    return _pool(
        input, rois[:, 0], turned[0], _pair(output_size), sampling_ratio, "avg", turned[1:]
    )


def _precise(input: Tensor) -> torch.dtype:
    return input.dtype if input.dtype == torch.float64 else torch.float32


def _pool(
    input: Tensor,
    images: Tensor,
    regions: Tensor,
    size: tuple[int, int],
    sampling_ratio: int,
    pool_mode: str,
    turn: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Pool regions (x, y, width, height) that are turned around centres by angles, if given."""
    channels, height, width = input.shape[1:]
    table = input.to(_precise(input)).permute(0, 2, 3, 1).reshape(-1, channels)
    bins = regions[:, 2:].flip(1) / regions.new_tensor(size)
    grids = bins.ceil().long().clamp(min=0)
    if sampling_ratio > 0:
        grids = torch.full_like(grids, sampling_ratio)
    pooled, members, bags = [], [], []
    for rows, columns in torch.unique(grids, dim=0).tolist():
        group = torch.nonzero((grids[:, 0] == rows) & (grids[:, 1] == columns)).view(-1)
        each = 4 * rows * columns * size[0] * size[1]
        at_once = max(_PIXELS_AT_ONCE // max(each, 1), 1)
        for begin in range(0, len(group), at_once):
            part = group[begin : begin + at_once]
            y = _samples(regions[part, 1], bins[part, 0], size[0], rows)[:, :, None, :, None]
            x = _samples(regions[part, 0], bins[part, 1], size[1], columns)[:, None, :, None, :]
            y, x = _turned(y, x, turn[0][part], turn[1][part]) if turn else (y, x)
            pixels, weights = _neighbours(y, x, height, width)
            pixels += images[part].long().view(-1, 1, 1, 1, 1, 1) * (height * width)
            bags.append((pixels.flatten(3, 4), weights.flatten(3, 4)))
            members.append(part)
            if sum(found.numel() for found, _ in bags) >= _PIXELS_AT_ONCE:
                pooled.append(_reduce(table, bags, pool_mode))
                bags = []
    if bags:
        pooled.append(_reduce(table, bags, pool_mode))
    if not pooled:
        return input.new_zeros(0, channels, *size) + input.sum() * 0
    result = torch.cat(pooled).view(-1, *size, channels)[torch.cat(members).argsort()]
    return result.permute(0, 3, 1, 2).to(input.dtype).contiguous()


def _turned(y: Tensor, x: Tensor, centre: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return points, relative to their region's centre, turned and moved to the map."""
    centre, angle = centre.view(-1, 2, 1, 1, 1, 1), angle.view(-1, 1, 1, 1, 1)
    cos, sin = angle.cos(), angle.sin()
    return y * cos - x * sin + centre[:, 1], y * sin + x * cos + centre[:, 0]


def _samples(start: Tensor, step: Tensor, bins: int, count: int) -> Tensor:
    """Return the coordinates (k, bins, count) of the samples along one axis."""
    at_bin = torch.arange(bins, device=start.device, dtype=start.dtype)[:, None]
    within = (torch.arange(count, device=start.device, dtype=start.dtype) + 0.5)[None]
    start, step = start[:, None, None], step[:, None, None]
    return start + at_bin * step + within * step / max(count, 1)


def _neighbours(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the four pixels around each point, and their weights: none outside of the map."""
    outside = (y < -1) | (y > height) | (x < -1) | (x > width)
    y = y.clamp(0, height - 1).expand(outside.shape)
    x = x.clamp(0, width - 1).expand(outside.shape)
    top, left = y.floor(), x.floor()
    down, right = y - top, x - left
    weights = torch.stack(
        [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], -1
    ).masked_fill_(outside.unsqueeze(-1), 0.0)
    rows = torch.stack([top, top, top + 1, top + 1], -1).long().clamp_(max=height - 1)
    columns = torch.stack([left, left + 1, left, left + 1], -1).long().clamp_(max=width - 1)
    return rows * width + columns, weights


def _reduce(table: Tensor, bags: list[tuple[Tensor, Tensor]], pool_mode: str) -> Tensor:
    """Return the mean or maximum (bins, c) of the samples of each bin.

    Args:
        table: The pixels, of shape (n, c).
        bags: Pixels and weights (k, height, width, samples, 4), of regions of the same grid each.
        pool_mode: ``"avg"`` or ``"max"``.
    """
    if pool_mode == "avg":  # one bag for each bin: of its samples' pixels
        bins = [(pixels.shape[:3].numel(), pixels.size(3)) for pixels, _ in bags]
        parts = [weights / max(weights.size(3), 1) for _, weights in bags]
        lengths = torch.cat([torch.full((count,), samples * 4) for count, samples in bins])
        return _sums(table, [pixels for pixels, _ in bags], parts, lengths)
    results = []
    for pixels, weights in bags:  # one bag for each sample
        lengths = torch.full((pixels.shape[:4].numel(),), 4)
        values = _sums(table, [pixels], [weights], lengths)
        values = values.view(-1, pixels.size(3), table.size(1))
        empty = table.new_zeros(pixels.shape[:3].numel(), table.size(1))
        results.append(values.max(1).values if pixels.size(3) else empty)
    return torch.cat(results)


def _sums(table: Tensor, pixels: list[Tensor], weights: list[Tensor], lengths: Tensor) -> Tensor:
    """Return the weighted sums of bags of pixels, by the bags' lengths."""
    flat = torch.cat([one.reshape(-1) for one in pixels])
    each = torch.cat([one.reshape(-1) for one in weights])
    offsets = (lengths.cumsum(0) - lengths).to(flat.device)
    return functional.embedding_bag(flat, table, offsets, mode="sum", per_sample_weights=each)


class RoIAlign(nn.Module):
    """Pool regions of feature maps to a fixed size by :func:`roi_align`.

    Args:
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
        sampling_ratio: Samples per bin along each axis; 0 takes one per pixel.
        pool_mode: ``"avg"`` or ``"max"``.
        aligned: Pixels' centres are at half coordinates.
        use_torchvision: Take torchvision's, which averages always.
    """

    @deprecated_api_warning(
        {"out_size": "output_size", "sample_num": "sampling_ratio"}, cls_name="RoIAlign"
    )
    def __init__(
        self,
        output_size: int | tuple[int, int],
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        pool_mode: str = "avg",
        aligned: bool = True,
        use_torchvision: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.sampling_ratio = int(sampling_ratio)
        self.pool_mode = pool_mode
        self.aligned = aligned
        self.use_torchvision = use_torchvision

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Pool the regions (index, x1, y1, x2, y2) of the maps."""
        mode = "avg" if self.use_torchvision else self.pool_mode
        sampling = self.spatial_scale, self.sampling_ratio
        return roi_align(input, rois, self.output_size, *sampling, mode, self.aligned)

    def __repr__(self) -> str:
        names = "output_size spatial_scale sampling_ratio pool_mode aligned use_torchvision"
        return _described(self, names)


class RoIAlignRotated(nn.Module):
    """Pool rotated regions of feature maps to a fixed size by :func:`roi_align_rotated`.

    Args:
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
        sampling_ratio: Samples per bin along each axis; 0 takes one per pixel.
        aligned: Pixels' centres are at half coordinates.
        clockwise: Whether a positive angle turns a region clockwise in the image.
    """

    @deprecated_api_warning(
        {"out_size": "output_size", "sample_num": "sampling_ratio"}, cls_name="RoIAlignRotated"
    )
    def __init__(
        self,
        output_size: int | tuple[int, int],
        spatial_scale: float,
        sampling_ratio: int = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.sampling_ratio = int(sampling_ratio)
        self.aligned = aligned
        self.clockwise = clockwise

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Pool the regions (index, centre x, centre y, width, height, angle) of the maps."""
        sampling = self.spatial_scale, self.sampling_ratio, self.aligned, self.clockwise
        return roi_align_rotated(input, rois, self.output_size, *sampling)

    def __repr__(self) -> str:
        return _described(self, "output_size spatial_scale sampling_ratio aligned clockwise")


def _described(module: Any, names: str) -> str:
    values = ", ".join(f"{name}={getattr(module, name)}" for name in names.split())
    return f"{type(module).__name__}({values})"
