"""RoIAlign: pool regions of feature maps, by bilinear samples on a regular grid in each bin.

Each output is a weighted sum of pixels, which ``embedding_bag`` computes from a table of pixels
without an intermediate of all samples. Gradients go to the maps only, as in mmcv.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lightning_hooks.standin.ops.backend import gradients, torchvision_ops

__all__ = [
    "roi_align_backward",
    "roi_align_forward",
    "roi_align_rotated_backward",
    "roi_align_rotated_forward",
]

_PIXELS_AT_ONCE = 1 << 22


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill the output with the mean (pool_mode 1) or maximum (0) of each bin; 0 without samples.

    For the maximum, the places of the samples that have it are filled in too.
    """
    size = aligned_height, aligned_width
    compiled = torchvision_ops() if pool_mode == 1 and input.dtype == rois.dtype else None
    if compiled is not None:
        output.copy_(compiled.roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned))
        return
    table = _table(input)
    for groups in _packs(input, size, sampling_ratio, *_regions(rois, spatial_scale, aligned)):
        if pool_mode == 1:
            output[_members(groups)] = _unfolded(_means(table, groups), size, output)
            continue
        for group in groups:
            values = _sums(table, group.pixels, group.weights, 4)
            values = values.view(*group.pixels.shape[:4], table.size(1))
            if values.numel():
                best = values.max(3)
                output[group.members] = best.values.permute(0, 3, 1, 2).to(output.dtype)
                for found, axis in ((argmax_y, group.y), (argmax_x, group.x)):
                    places = axis.flatten(3).gather(3, best.indices)
                    found[group.members] = places.permute(0, 3, 1, 2).to(found.dtype)
            else:
                argmax_y[group.members] = argmax_x[group.members] = -1.0


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Add the gradient of the maps."""
    if pool_mode == 0:
        _add_at(grad_input, grad_output, rois, argmax_y, argmax_x)
        return
    size = aligned_height, aligned_width
    compiled = torchvision_ops() if grad_input.dtype == rois.dtype else None
    if compiled is not None:
        sampling = size, spatial_scale, sampling_ratio, aligned
        pool = partial(lambda maps: compiled.roi_align(maps, rois, *sampling))
        grad_input += gradients(pool, (grad_input,), grad_output)[0]
        return
    _add_means(grad_input, grad_output, sampling_ratio, *_regions(rois, spatial_scale, aligned))


def roi_align_rotated_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Fill the output with the mean of each bin of rotated regions."""
    size, table = (pooled_height, pooled_width), _table(input)
    regions = _rotated_regions(rois, spatial_scale, aligned, clockwise)
    for groups in _packs(input, size, sampling_ratio, *regions):
        output[_members(groups)] = _unfolded(_means(table, groups), size, output)


def roi_align_rotated_backward(
    grad_output: Tensor,
    rois: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Add the gradient of the maps."""
    regions = _rotated_regions(rois, spatial_scale, aligned, clockwise)
    _add_means(grad_input, grad_output, sampling_ratio, *regions)


class _Turn(NamedTuple):
    """The centres (k, 2) around which regions are turned, and the angles (k,)."""

    centre: Tensor
    angle: Tensor


class _Group(NamedTuple):
    """The samples of regions that have equally many in each bin.

    ``members`` are the regions' indices; ``y`` and ``x`` the samples' places, of shape (k, height,
    width, rows, columns); ``pixels`` the four around each, as rows of the table, and ``weights``
    theirs, of shape (k, height, width, samples, 4).
    """

    members: Tensor
    y: Tensor
    x: Tensor
    pixels: Tensor
    weights: Tensor


def _regions(rois: Tensor, scale: float, aligned: bool) -> tuple[Tensor, Tensor, None]:
    """Return the images, and the regions (x, y, width, height) on the maps."""
    corners = rois[:, 1:].to(_precise(rois)) * scale - (0.5 if aligned else 0.0)
    start, sides = corners[:, :2], corners[:, 2:] - corners[:, :2]
    return rois[:, 0], torch.cat([start, sides if aligned else sides.clamp(min=1)], 1), None


def _rotated_regions(
    rois: Tensor, scale: float, aligned: bool, clockwise: bool
) -> tuple[Tensor, Tensor, _Turn]:
    """Return the images, the regions relative to their centres, and how they are turned."""
    scaled = rois[:, 1:5].to(_precise(rois)) * scale
    sides = scaled[:, 2:] if aligned else scaled[:, 2:].clamp(min=1)
    angle = rois[:, 5].to(scaled)
    turn = _Turn(scaled[:, :2] - (0.5 if aligned else 0.0), -angle if clockwise else angle)
    return rois[:, 0], torch.cat([-sides / 2, sides], 1), turn


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _table(maps: Tensor) -> Tensor:
    """Return all pixels as rows (n * h * w, c)."""
    return maps.to(_precise(maps)).permute(0, 2, 3, 1).reshape(-1, maps.size(1))


def _packs(
    maps: Tensor,
    size: tuple[int, int],
    sampling_ratio: int,
    images: Tensor,
    regions: Tensor,
    turn: _Turn | None,
) -> Iterator[list[_Group]]:
    """Yield the groups of all regions, in packs of limited size."""
    height, width = maps.shape[2:]
    bins = regions[:, 2:].flip(1) / regions.new_tensor(size)
    grids = bins.ceil().long().clamp(min=0)
    if sampling_ratio > 0:
        grids = torch.full_like(grids, sampling_ratio)
    pack: list[_Group] = []
    for rows, columns in torch.unique(grids, dim=0).tolist():
        members = torch.nonzero((grids[:, 0] == rows) & (grids[:, 1] == columns)).view(-1)
        each = 4 * rows * columns * size[0] * size[1]
        at_once = max(_PIXELS_AT_ONCE // max(each, 1), 1)
        for begin in range(0, len(members), at_once):
            part = members[begin : begin + at_once]
            y = _samples(regions[part, 1], bins[part, 0], size[0], rows)[:, :, None, :, None]
            x = _samples(regions[part, 0], bins[part, 1], size[1], columns)[:, None, :, None, :]
            y, x = (y, x) if turn is None else _turned(y, x, turn.centre[part], turn.angle[part])
            y, x = y.expand(*y.shape[:2], x.size(2), rows, columns), x.expand(*x.shape)
            x = x.expand(y.shape)
            pixels, weights = _neighbours(y, x, height, width)
            pixels += images[part].long().view(-1, 1, 1, 1, 1, 1) * (height * width)
            pack.append(_Group(part, y, x, pixels.flatten(3, 4), weights.flatten(3, 4)))
            if sum(group.pixels.numel() for group in pack) >= _PIXELS_AT_ONCE:
                yield pack
                pack = []
    if pack:
        yield pack


def _samples(start: Tensor, step: Tensor, bins: int, count: int) -> Tensor:
    """Return the coordinates (k, bins, count) of the samples along one axis."""
    at_bin = torch.arange(bins, device=start.device, dtype=start.dtype)[:, None]
    within = (torch.arange(count, device=start.device, dtype=start.dtype) + 0.5)[None]
    start, step = start[:, None, None], step[:, None, None]
    return start + at_bin * step + within * step / max(count, 1)


def _turned(y: Tensor, x: Tensor, centre: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return points, relative to their region's centre, turned and moved to the map."""
    centre, angle = centre.view(-1, 2, 1, 1, 1, 1), angle.view(-1, 1, 1, 1, 1)
    cos, sin = angle.cos(), angle.sin()
    return y * cos - x * sin + centre[:, 1], y * sin + x * cos + centre[:, 0]


def _neighbours(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the four pixels around each point, and their weights: none outside of the map."""
    outside = (y < -1) | (y > height) | (x < -1) | (x > width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.floor(), x.floor()
    down, right = y - top, x - left
    weights = torch.stack(
        [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], -1
    ).masked_fill_(outside.unsqueeze(-1), 0.0)
    rows = torch.stack([top, top, top + 1, top + 1], -1).long().clamp_(max=height - 1)
    columns = torch.stack([left, left + 1, left, left + 1], -1).long().clamp_(max=width - 1)
    return rows * width + columns, weights


def _members(groups: list[_Group]) -> Tensor:
    return torch.cat([group.members for group in groups])


def _means(table: Tensor, groups: list[_Group]) -> Tensor:
    """Return the mean (bins, c) of each bin's samples."""
    pixels = torch.cat([group.pixels.reshape(-1) for group in groups])
    weights = torch.cat([(g.weights / max(g.weights.size(3), 1)).reshape(-1) for g in groups])
    lengths = [torch.full(g.pixels.shape[:3], 4 * g.pixels.size(3)).view(-1) for g in groups]
    return _sums(table, pixels, weights, torch.cat(lengths))


def _sums(table: Tensor, pixels: Tensor, weights: Tensor, lengths: Tensor | int) -> Tensor:
    """Return the weighted sums (bags, c) of bags of pixels, of given lengths."""
    pixels, weights = pixels.reshape(-1), weights.reshape(-1).to(table.dtype)
    if isinstance(lengths, int):
        offsets = torch.arange(0, len(pixels), lengths, device=pixels.device)
    else:
        offsets = (lengths.cumsum(0) - lengths).to(pixels.device)
    return functional.embedding_bag(pixels, table, offsets, mode="sum", per_sample_weights=weights)


def _unfolded(pooled: Tensor, size: tuple[int, int], like: Tensor) -> Tensor:
    """Return bins (k * height * width, c) as (k, c, height, width)."""
    return pooled.view(-1, *size, pooled.size(1)).permute(0, 3, 1, 2).to(like.dtype)


def _add_means(
    grad_input: Tensor,
    grad_output: Tensor,
    sampling_ratio: int,
    images: Tensor,
    regions: Tensor,
    turn: _Turn | None,
) -> None:
    """Add the gradient of the maps for that of the bins' means."""
    channels, rows, columns = grad_output.shape[1:]
    table = _table(torch.zeros_like(grad_input))
    for groups in _packs(grad_input, (rows, columns), sampling_ratio, images, regions, turn):
        grad = grad_output[_members(groups)].permute(0, 2, 3, 1).reshape(-1, channels)
        found = gradients(partial(_means, groups=groups), (table,), grad.to(table.dtype))[0]
        shape = grad_input.size(0), *grad_input.shape[2:], channels
        grad_input += found.view(shape).permute(0, 3, 1, 2).to(grad_input.dtype)


def _add_at(maps: Tensor, grad: Tensor, rois: Tensor, y: Tensor, x: Tensor) -> None:
    """Add gradients (k, c, ...) at places of the maps; at -1 there was no sample."""
    height, width = maps.shape[2:]
    pixels, weights = _neighbours(y, x, height, width)
    weights = weights.masked_fill((y == -1).unsqueeze(-1), 0.0)
    channels = torch.arange(maps.size(1), device=maps.device).view(1, -1, 1, 1, 1)
    images = rois[:, 0].long().view(-1, 1, 1, 1, 1)
    flat = (images * maps.size(1) + channels) * (height * width) + pixels
    added = (weights * grad.unsqueeze(-1)).to(maps.dtype)
    maps.view(-1).scatter_add_(0, flat.reshape(-1), added.reshape(-1))
