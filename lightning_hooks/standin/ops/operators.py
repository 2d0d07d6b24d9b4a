"""Operators of mmcv's compiled extension, as formulas in torch.

Each public function has the name and the arguments of its counterpart in ``mmcv._ext``; most fill
an output tensor. A backward function evaluates the formula again and lets autograd differentiate.
If torchvision is installed, ``nms``, ``roi_align`` and ``deform_conv2d`` are its compiled ones.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "box_iou_rotated",
    "deform_conv_backward_input",
    "deform_conv_backward_parameters",
    "deform_conv_forward",
    "modulated_deform_conv_backward",
    "modulated_deform_conv_forward",
    "nms",
    "nms_rotated",
    "roi_align_backward",
    "roi_align_forward",
    "roi_align_rotated_backward",
    "roi_align_rotated_forward",
    "sigmoid_focal_loss_backward",
    "sigmoid_focal_loss_forward",
]


@functools.cache
def torchvision_ops() -> Any:
    """Import ``torchvision.ops``; return None if torchvision is missing or built for another torch.

    A torchvision built for another torch may fail only when an operator runs, so ``nms`` is tried.
    """
    try:
        operators = importlib.import_module("torchvision.ops")
        operators.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception:
        return None
    return operators


def _gradients(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of a function's inputs for a gradient of the result."""
    with torch.enable_grad():
        leaves = [value.detach().requires_grad_() for value in inputs]
        result = function(*leaves)
        if not result.requires_grad:  # pooled without a sample
            return tuple(map(torch.zeros_like, inputs))
        return torch.autograd.grad(result, leaves, grad)


# -- boxes ---------------------------------------------------------------------------------------


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes kept by non-maximum suppression, best first.

    Args:
        boxes: Boxes (x1, y1, x2, y2), of shape (n, 4).
        scores: Scores of the boxes, of shape (n,). Of equal scores, the first box is the better.
        iou_threshold: A larger overlap with a kept box drops a box.
        offset: The width of a box is ``x2 - x1 + offset``.
    """
    boxes = boxes if boxes.dtype == torch.float64 else boxes.float()
    threshold = float(np.float32(iou_threshold))  # mmcv compares in single precision
    compiled = torchvision_ops() if offset == 0 else None
    if compiled is not None:
        kept: Tensor = compiled.nms(boxes, scores.to(boxes.dtype), threshold)
        return kept
    low, high = boxes[:, :2], boxes[:, 2:] + offset
    areas = (high - low).prod(1)

    def overlaps(best: Tensor, others: Tensor) -> Tensor:
        sides = torch.minimum(high[best], high[others]) - torch.maximum(low[best], low[others])
        shared = sides.clamp(min=0).prod(1)
        return shared / (areas[best] + areas[others] - shared)

    return _suppress(scores.sort(descending=True, stable=True).indices, overlaps, threshold)


def _suppress(
    order: Tensor, overlaps: Callable[[Tensor, Tensor], Tensor], threshold: float
) -> Tensor:
    """Keep the best index, drop the indices of overlapping boxes, and repeat."""
    kept = [order[:0]]
    while len(order):
        best, order = order[:1], order[1:]
        kept.append(best)
        order = order[~(overlaps(best, order) > threshold)]
    return torch.cat(kept)


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Return the indices of the rotated boxes kept by non-maximum suppression, best first.

    Args:
        dets: Boxes (centre x, centre y, width, height, angle), followed by a label if
            ``multi_label``: boxes of different labels do not overlap.
        scores: Unused: ``order`` ranks the boxes.
        order: The indices of the boxes, best first.
        dets_sorted: Unused.
        labels: Unused: the labels are in ``dets``.
        iou_threshold: A larger overlap with a kept box drops a box.
        multi_label: Whether ``dets`` has labels.
    """
    corners, label = _corners(dets), dets[:, 5:]

    def overlaps(best: Tensor, others: Tensor) -> Tensor:
        ious = _polygon_overlaps(corners[best], corners[others], mode=0)
        return ious * (label[best] == label[others]).all(1)

    return _suppress(order, overlaps, iou_threshold)


def box_iou_rotated(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool
) -> None:
    """Fill in the overlaps of boxes (centre x, centre y, width, height, angle in radian).

    Args:
        bboxes1: Boxes of shape (m, 5); a positive angle turns a box clockwise in the image. Further
            columns, such as scores, are ignored.
        bboxes2: Boxes of shape (n, 5).
        ious: Filled with m * n values row by row, or with m values if ``aligned``.
        mode_flag: 0 divides the intersection by the union, 1 by the area of the first box.
        aligned: Whether boxes are compared pair by pair.
    """
    first, second = _corners(bboxes1), _corners(bboxes2)
    if aligned:
        ious.copy_(_polygon_overlaps(first, second, mode_flag))
        return
    for row, corners in zip(ious.view(len(first), len(second)), first, strict=True):
        row.copy_(_polygon_overlaps(corners, second, mode_flag))


_TOLERANCE = 1e-7  # in pixels, for coordinates in double precision


def _corners(boxes: Tensor) -> Tensor:
    """Return the four corners (n, 4, 2) of rotated boxes, in order and in double precision."""
    x, y, width, height, angle = boxes[:, :5].double().unbind(1)
    along = torch.stack([angle.cos() * width, angle.sin() * width], -1) / 2
    across = torch.stack([-angle.sin() * height, angle.cos() * height], -1) / 2
    sides = [-along - across, along - across, along + across, across - along]
    return torch.stack(sides, -2) + torch.stack([x, y], -1).unsqueeze(-2)


def _polygon_overlaps(first: Tensor, second: Tensor, mode: int) -> Tensor:
    """Return the overlaps of convex polygons (..., corners, 2); 0 for a polygon without area."""
    centre = (first.mean(-2, keepdim=True) + second.mean(-2, keepdim=True)) / 2
    first, second = first - centre, second - centre  # large coordinates would cost precision
    shared = _border_within(first, second, -_TOLERANCE) + _border_within(second, first, _TOLERANCE)
    areas = [(_cross(p, p.roll(-1, -2)) / 2).sum(-1) for p in (first, second)]
    base = areas[0] + areas[1] - shared if mode == 0 else areas[0].expand_as(shared)
    flat = torch.minimum(*areas) < 1e-14
    return (shared.clamp(min=0) / base).masked_fill(flat, 0)


def _border_within(polygon: Tensor, other: Tensor, limit: float) -> Tensor:
    """Return a polygon's part of the area of the intersection with another polygon.

    By Green's theorem the area is half the integral of x dy - y dx along the border of the
    intersection: the edges of each polygon within the other polygon. Coinciding edges count for the
    polygon with the negative ``limit``.
    """
    edges = polygon.roll(-1, -2) - polygon
    walls = functional.normalize(other.roll(-1, -2) - other, dim=-1).unsqueeze(-3)
    distance = _cross(walls, polygon.unsqueeze(-2) - other.unsqueeze(-3))  # positive: inside
    slope = _cross(walls, edges.unsqueeze(-2))
    parallel = slope.abs() <= _TOLERANCE
    crossing = -distance / slope  # from 0 at the start of an edge to 1 at its end
    start = crossing.masked_fill(parallel | (slope < 0), 0).amax(-1).clamp(min=0)
    end = crossing.masked_fill(parallel | (slope > 0), 1).amin(-1).clamp(max=1)
    same_way = (walls * edges.unsqueeze(-2)).sum(-1) > 0
    outside = parallel & (distance < torch.where(same_way, limit, _TOLERANCE))
    within = (end - start).clamp(min=0).masked_fill(outside.any(-1), 0)
    return (within * _cross(polygon, edges)).sum(-1) / 2


def _cross(first: Tensor, second: Tensor) -> Tensor:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


# -- pooling of regions --------------------------------------------------------------------------


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    pool_mode: int,
    **sampling: Any,
) -> None:
    """Fill in the means of bilinear samples in each bin of regions; 0 for a bin without samples.

    Args:
        input: Feature maps, of shape (n, c, h, w).
        rois: Regions (image, x1, y1, x2, y2), of shape (k, 5).
        output: Filled, of shape (k, c, rows, columns).
        argmax_y: Unused.
        argmax_x: Unused.
        pool_mode: 1, the mean.
        **sampling: aligned_height, aligned_width, spatial_scale, sampling_ratio, aligned.

    Raises:
        NotImplementedError: for the maximum, ``pool_mode`` 0.
    """
    if pool_mode != 1:
        raise NotImplementedError("the stand-in's roi_align has pool_mode='avg' only")
    output.copy_(_roi_align(input, rois, **sampling))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    pool_mode: int,
    **sampling: Any,
) -> None:
    """Add the gradient of the feature maps."""
    pool = partial(_roi_align, rois=rois, **sampling)
    grad_input += _gradients(pool, (grad_input,), grad_output)[0]


def roi_align_rotated_forward(input: Tensor, rois: Tensor, output: Tensor, **sampling: Any) -> None:
    """Fill in the means of bilinear samples in each bin of rotated regions.

    Args:
        input: Feature maps, of shape (n, c, h, w).
        rois: Regions (image, centre x, centre y, width, height, angle), of shape (k, 6).
        output: Filled, of shape (k, c, rows, columns).
        **sampling: pooled_height, pooled_width, spatial_scale, sampling_ratio, aligned, clockwise.
    """
    output.copy_(_roi_align_rotated(input, rois, **sampling))


def roi_align_rotated_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, **sampling: Any
) -> None:
    """Add the gradient of the feature maps."""
    pool = partial(_roi_align_rotated, rois=rois, **sampling)
    grad_input += _gradients(pool, (grad_input,), grad_output)[0]


def _roi_align(
    input: Tensor,
    rois: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    size = aligned_height, aligned_width
    compiled = torchvision_ops() if input.dtype == rois.dtype else None
    if compiled is not None:
        pooled: Tensor = compiled.roi_align(
            input, rois, size, spatial_scale, sampling_ratio, aligned
        )
        return pooled
    corners = _precise(rois[:, 1:]) * spatial_scale - (0.5 if aligned else 0.0)
    start, sides = corners[:, :2], corners[:, 2:] - corners[:, :2]
    sides = sides if aligned else sides.clamp(min=1)
    none = torch.zeros_like(start)
    return _pool(input, rois[:, 0], none, none[:, 0], start, sides, size, sampling_ratio)


def _roi_align_rotated(
    input: Tensor,
    rois: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> Tensor:
    size, regions = (pooled_height, pooled_width), _precise(rois)
    scaled = regions[:, 1:5] * spatial_scale
    centre = scaled[:, :2] - (0.5 if aligned else 0.0)
    sides = scaled[:, 2:] if aligned else scaled[:, 2:].clamp(min=1)
    angle = -regions[:, 5] if clockwise else regions[:, 5]
    return _pool(input, rois[:, 0], centre, angle, -sides / 2, sides, size, sampling_ratio)


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _pool(
    maps: Tensor,
    images: Tensor,
    centre: Tensor,
    angle: Tensor,
    start: Tensor,
    sides: Tensor,
    size: tuple[int, int],
    sampling_ratio: int,
) -> Tensor:
    """Return the means of samples in ``size`` bins of k regions.

    A region begins at ``start``, has ``sides``, is turned by ``angle`` around the origin, and is
    moved by ``centre``. All but the angle are (x, y), in pixels of the maps.
    """
    channels, height, width = maps.shape[1:]
    table = _precise(maps).permute(0, 2, 3, 1).reshape(-1, channels)  # a row for each pixel
    steps = sides / sides.new_tensor(size[::-1])
    counts = steps.ceil().long().clamp(min=0)
    if sampling_ratio > 0:
        counts = torch.full_like(counts, sampling_ratio)
    pooled = table.new_zeros(len(images), *size, channels)
    for columns, rows in torch.unique(counts, dim=0).tolist():
        if not rows * columns:
            continue
        members = (counts == counts.new_tensor([columns, rows])).all(1).nonzero()[:, 0]
        x = _samples(start[members, 0], steps[members, 0], size[1], columns)[:, None, :, None, :]
        y = _samples(start[members, 1], steps[members, 1], size[0], rows)[:, :, None, :, None]
        around, turn = centre[members].view(-1, 2, 1, 1, 1, 1), angle[members].view(-1, 1, 1, 1, 1)
        pixels, weights = _neighbours(
            y * turn.cos() - x * turn.sin() + around[:, 1],
            y * turn.sin() + x * turn.cos() + around[:, 0],
            height,
            width,
        )
        pixels += images[members].long().view(-1, 1, 1, 1, 1, 1) * (height * width)
        shares = (weights / (rows * columns)).to(table.dtype)
        means = functional.embedding_bag(
            pixels.flatten(3).flatten(0, 2), table, mode="sum",
            per_sample_weights=shares.flatten(3).flatten(0, 2),
        )  # fmt: skip
        pooled[members] = means.view(-1, *size, channels)
    return pooled.permute(0, 3, 1, 2)


def _samples(start: Tensor, step: Tensor, bins: int, count: int) -> Tensor:
    """Return the coordinates (k, bins, count) of the samples along an axis."""
    at_bin = torch.arange(bins, device=start.device, dtype=start.dtype)[:, None]
    within = torch.arange(count, device=start.device, dtype=start.dtype) + 0.5
    start, step = start[:, None, None], step[:, None, None]
    return start + at_bin * step + within * step / count


def _neighbours(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the four pixels around each point with bilinear weights, 0 outside of the map."""
    outside = (y < -1) | (y > height) | (x < -1) | (x > width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.floor(), x.floor()
    down, right = y - top, x - left
    weights = torch.stack(
        [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], -1
    ).masked_fill(outside.unsqueeze(-1), 0)
    rows = torch.stack([top, top, top + 1, top + 1], -1).long().clamp(max=height - 1)
    columns = torch.stack([left, left + 1, left, left + 1], -1).long().clamp(max=width - 1)
    return rows * width + columns, weights


# -- deformable convolutions ---------------------------------------------------------------------


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    **sizes: Any,
) -> None:
    """Fill in the convolution with moved samples (version 1).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        offset: The moves (y, x) of each element of the kernel, in pixels, of shape
            (n, deform_groups * elements * 2, rows, columns).
        output: Filled.
        columns: Unused.
        ones: Unused.
        **sizes: kW, kH, dW, dH, padW, padH, dilationW, dilationH, group, deformable_group,
            im2col_step.
    """
    output.copy_(_convolve(input, offset, weight, **_geometry(_VERSION_1, sizes)))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **sizes: Any,
) -> None:
    """Fill in the gradients of input and offset."""
    convolve = partial(_convolve, weight=weight, **_geometry(_VERSION_1, sizes))
    gradients = _gradients(convolve, (input, offset), grad_output)
    grad_input.copy_(gradients[0])
    grad_offset.copy_(gradients[1])


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    scale: float,
    **sizes: Any,
) -> None:
    """Add the gradient of the kernel."""
    convolve = partial(_convolve, input, offset, **_geometry(_VERSION_1, sizes))
    grad_weight += _gradients(convolve, (grad_weight,), grad_output)[0] * scale


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    with_bias: bool,
    **sizes: Any,
) -> None:
    """Fill in the convolution with moved and weighted samples (version 2).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        bias: Added to each channel of the result.
        ones: Unused.
        offset: As in :func:`deform_conv_forward`.
        mask: The factor of each element of the kernel, of shape
            (n, deform_groups * elements, rows, columns).
        output: Filled.
        columns: Unused.
        with_bias: Whether the bias is added.
        **sizes: kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
            group, deformable_group.
    """
    convolved = _convolve(input, offset, weight, mask, **_geometry(_VERSION_2, sizes))
    output.copy_(convolved + bias.view(1, -1, 1, 1) if with_bias else convolved)


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **sizes: Any,
) -> None:
    """Fill in the gradients of input, offset, kernel and mask; add the gradient of the bias."""
    convolve = partial(_convolve, **_geometry(_VERSION_2, sizes))
    gradients = _gradients(convolve, (input, offset, weight, mask), grad_output)
    for grad, filled in zip(
        gradients, (grad_input, grad_offset, grad_weight, grad_mask), strict=True
    ):
        filled.copy_(grad)
    if with_bias:
        grad_bias += grad_output.sum((0, 2, 3))


_VERSION_1 = ("dH", "dW", "padH", "padW", "dilationH", "dilationW")
_VERSION_2 = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w")


def _geometry(names: tuple[str, ...], sizes: dict[str, Any]) -> dict[str, Any]:
    pairs = [
        (sizes[row], sizes[column]) for row, column in zip(names[::2], names[1::2], strict=True)
    ]
    return {
        **dict(zip(("stride", "padding", "dilation"), pairs, strict=True)),
        "groups": sizes["group"],
        "deform_groups": sizes["deformable_group"],
    }


def _convolve(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    *,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    deform_groups: int,
) -> Tensor:
    compiled = torchvision_ops()
    if compiled is not None:
        convolved: Tensor = compiled.deform_conv2d(
            input, offset, weight, None, stride, padding, dilation, mask
        )
        return convolved
    batch, (rows, columns) = len(input), offset.shape[2:]
    moves = _precise(offset).view(batch * deform_groups, *weight.shape[2:], 2, rows, columns)
    places = []
    for axis, length in enumerate(input.shape[2:]):
        start = torch.arange(offset.size(2 + axis), device=offset.device) * stride[axis]
        element = torch.arange(weight.size(2 + axis), device=offset.device) * dilation[axis]
        shape = [1] * 5  # kernel height and width, rows, columns
        shape[1 + axis], shape[3 + axis] = len(element), len(start)
        place = (element[:, None] + start - padding[axis]).view(shape) + moves[:, :, :, axis]
        places.append((2 * place + 1) / length - 1)  # -1 and 1 are the outer edges of the map
    grid = torch.stack(places[::-1], -1).reshape(len(moves), -1, columns, 2)
    maps = input.reshape(len(grid), -1, *input.shape[2:]).to(grid.dtype)
    samples = functional.grid_sample(maps, grid, align_corners=False)
    if mask is not None:
        samples = samples * mask.reshape(len(samples), 1, -1, columns)
    patches = samples.to(input.dtype).reshape(batch, groups, -1, rows * columns)
    kernels = weight.reshape(groups, weight.size(0) // groups, -1)
    return torch.matmul(kernels, patches).reshape(batch, weight.size(0), rows, columns)


# -- losses --------------------------------------------------------------------------------------


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill in the focal losses (n, classes) of independent classes.

    With p the sigmoid of a score, the loss is ``-alpha (1 - p)^gamma log(p)`` for the right class
    and ``-(1 - alpha) p^gamma log(1 - p)`` for any other.

    Args:
        input: Scores, of shape (n, classes).
        target: The right classes, of shape (n,); the background is no class.
        weight: A factor for each class, or empty.
        output: Filled.
        gamma: The exponent.
        alpha: The weight of the right class.
    """
    output.copy_(_focal_loss(input, target, weight, gamma, alpha))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill in the derivative of each loss by the score."""
    loss = partial(_focal_loss, target=target, weight=weight, gamma=gamma, alpha=alpha)
    grad_input.copy_(_gradients(loss, (input,), torch.ones_like(input))[0])


def _focal_loss(
    input: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float
) -> Tensor:
    is_right = target[:, None] == torch.arange(input.size(1), device=input.device)
    # the logarithms of p and 1 - p stay finite where p underflows
    log_p, log_rest = functional.logsigmoid(input), functional.logsigmoid(-input)
    right = -alpha * (gamma * log_rest).exp() * log_p
    wrong = (alpha - 1) * (gamma * log_p).exp() * log_rest
    losses = torch.where(is_right, right, wrong)
    return losses * weight[target][:, None] if weight.numel() else losses
