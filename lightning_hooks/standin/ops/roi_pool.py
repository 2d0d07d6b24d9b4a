"""RoIPool: the maximum over the pixels of each bin of a region.

torchvision's operator rounds the regions first, and is not used for this reason.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["roi_pool_backward", "roi_pool_forward"]

_VALUES_AT_ONCE = 1 << 24


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Fill in the maximum of each bin and its pixel's index, or 0 and -1 where there is no pixel.

    Regions (index, x1, y1, x2, y2) include their last pixel.
    """
    height, width = input.shape[2:]
    corners = torch.cat([rois[:, 1:3], rois[:, 3:] + 1], 1) * spatial_scale
    top, down = _bins(corners[:, 1], corners[:, 3], pooled_height, height)
    left, right = _bins(corners[:, 0], corners[:, 2], pooled_width, width)
    heights, widths = (down - top).clamp(min=0), (right - left).clamp(min=0)
    extents = torch.stack([heights.amax(1), widths.amax(1)], 1)
    extents.masked_fill_((corners[:, 2:] <= corners[:, :2]).any(1, keepdim=True), 0)
    argmax.fill_(-1)
    table = input.permute(0, 2, 3, 1).reshape(-1, input.size(1))
    for most in torch.unique(extents, dim=0).tolist():
        group = torch.nonzero((extents == extents.new_tensor(most)).all(1)).view(-1)
        each = most[0] * most[1] * pooled_height * pooled_width * input.size(1)
        at_once = max(_VALUES_AT_ONCE // max(each, 1), 1)
        for begin in range(0, len(group) if each else 0, at_once):
            part = group[begin : begin + at_once]
            y = _pixels(top[part], down[part], most[0])[:, :, None, :, None]
            x = _pixels(left[part], right[part], most[1])[:, None, :, None, :]
            pixels = (y * width + x).flatten(3)
            first = rois[part, 0].long().view(-1, 1, 1, 1) * (height * width)
            values, best = table[first + pixels].max(3)
            empty = ((heights[part] == 0)[:, :, None] | (widths[part] == 0)[:, None]).unsqueeze(-1)
            found = pixels.gather(3, best).masked_fill(empty, -1)
            argmax[part] = found.permute(0, 3, 1, 2).to(argmax.dtype)
            output[part] = values.masked_fill(empty, 0.0).permute(0, 3, 1, 2)


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Add the gradient of each bin to that of its maximum."""
    channels = torch.arange(grad_input.size(1), device=rois.device).view(1, -1, 1, 1)
    images = rois[:, 0].long().view(-1, 1, 1, 1)
    plane = (images * grad_input.size(1) + channels) * grad_input.shape[2:].numel()
    found = argmax >= 0
    flat = (plane + argmax)[found]
    grad_input.view(-1).scatter_add_(0, flat, grad_output[found])


def _bins(start: Tensor, end: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """Return the first pixels (k, count) of the bins along one axis, and those after the last."""
    step, start = ((end - start) / count)[:, None], start[:, None]
    edges = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    first = (edges[:-1] * step + start).floor().clamp(0, limit)
    after = (edges[1:] * step + start).ceil().clamp(0, limit)
    return first.long(), after.long()


def _pixels(first: Tensor, after: Tensor, count: int) -> Tensor:
    """Return the pixels (k, bins, count) along one axis; short bins repeat their last one."""
    every = first.unsqueeze(-1) + torch.arange(count, device=first.device)
    return torch.minimum(every, after.unsqueeze(-1) - 1).clamp(min=0)
