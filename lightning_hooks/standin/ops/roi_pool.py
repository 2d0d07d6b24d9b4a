"""RoIPool: the maximum over the pixels of each bin of a region."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

__all__ = ["RoIPool", "roi_pool"]

_VALUES_AT_ONCE = 1 << 24


def roi_pool(
    input: Tensor, rois: Tensor, output_size: int | tuple[int, int], spatial_scale: float = 1.0
) -> Tensor:
    """Pool each region to a fixed size; the gradient goes to each bin's first maximum.

    torchvision's operator rounds the regions first, and is not used for this reason.

    Args:
        input: Feature maps, of shape (n, c, h, w).
        rois: Regions (index into n, x1, y1, x2, y2), of shape (k, 5). The last pixel is included.
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.

    Returns:
        The pooled regions, of shape (k, c, height, width). A bin without a pixel is 0.
    """
    assert rois.size(1) == 5, "rois must be (index, x1, y1, x2, y2)"
    rows, columns = _pair(output_size)
    height, width = input.shape[2:]
    boxes = rois.detach()[:, 1:]
    corners = torch.cat([boxes[:, :2], boxes[:, 2:] + 1], 1) * spatial_scale
    top, down = _bins(corners[:, 1], corners[:, 3], rows, height)
    left, right = _bins(corners[:, 0], corners[:, 2], columns, width)
    wrong = (corners[:, 2:] <= corners[:, :2]).any(1)
    heights, widths = (down - top).clamp(min=0), (right - left).clamp(min=0)
    extents = torch.stack([heights.amax(1), widths.amax(1)], 1).masked_fill(wrong[:, None], 0)
    table = input.permute(0, 2, 3, 1).reshape(-1, input.size(1))
    best = torch.full((len(rois), rows, columns, input.size(1)), -1, device=input.device)
    for most in torch.unique(extents, dim=0).tolist():
        group = torch.nonzero((extents == extents.new_tensor(most)).all(1)).view(-1)
        each = most[0] * most[1] * rows * columns * input.size(1)
        at_once = max(_VALUES_AT_ONCE // max(each, 1), 1)
        for begin in range(0, len(group) if each else 0, at_once):
            part = group[begin : begin + at_once]
            y = _pixels(top[part], down[part], most[0])[:, :, None, :, None]
            x = _pixels(left[part], right[part], most[1])[:, None, :, None, :]
            image = rois[part, 0].long().view(-1, 1, 1, 1, 1)
            pixels = ((image * height + y) * width + x).flatten(3)
            found = pixels.gather(3, table.detach()[pixels].max(3).indices)
            empty = (heights[part, :, None] == 0) | (widths[part, None, :] == 0)
            best[part] = found.masked_fill(empty.unsqueeze(-1), -1)
    pooled = table.gather(0, best.clamp(min=0).view(-1, input.size(1))).view(best.shape)
    return pooled.masked_fill(best < 0, 0.0).permute(0, 3, 1, 2).contiguous()


def _pixels(first: Tensor, after: Tensor, count: int) -> Tensor:
    """Return the pixels (k, bins, count) along one axis; short bins repeat their last one."""
    every = first.unsqueeze(-1) + torch.arange(count, device=first.device)
    return torch.minimum(every, after.unsqueeze(-1) - 1).clamp(min=0)


def _bins(start: Tensor, end: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """Return the first pixels (k, count) of the bins along one axis, and those after the last."""
    step, start = ((end - start) / count)[:, None], start[:, None]
    edges = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    first = (edges[:-1] * step + start).floor().clamp(0, limit)
    after = (edges[1:] * step + start).ceil().clamp(0, limit)
    return first.long(), after.long()


class RoIPool(nn.Module):
    """Pool regions of feature maps to a fixed size by :func:`roi_pool`.

    Args:
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
    """

    def __init__(self, output_size: int | tuple[int, int], spatial_scale: float = 1.0) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Pool the regions (index, x1, y1, x2, y2) of the maps."""
        return roi_pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(output_size={self.output_size}, spatial_scale={self.spatial_scale})"
