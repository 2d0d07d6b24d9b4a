"""Overlaps of boxes: intersection over union, of straight and of rotated boxes."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["bbox_overlaps", "box_iou_rotated"]

_MODES = ("iou", "iof")
_TOLERANCE = 1e-9
_PAIRS_AT_ONCE = 1 << 17


@torch.no_grad()
def bbox_overlaps(
    bboxes1: Tensor, bboxes2: Tensor, mode: str = "iou", aligned: bool = False, offset: int = 0
) -> Tensor:
    """Return the overlap of each box of one list with each box of another, without gradients.

    Args:
        bboxes1: Boxes (x1, y1, x2, y2), of shape (m, 4).
        bboxes2: Boxes of shape (n, 4).
        mode: ``"iou"`` divides the intersection by the union, ``"iof"`` by the area of the first.
        aligned: Compare the boxes pair by pair: the result has the shape (m,), else (m, n).
        offset: A box is ``x2 - x1 + offset`` wide.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 20.0]])
        >>> bbox_overlaps(boxes[:1], boxes)
        tensor([[1.0000, 0.5000]])
    """
    assert mode in _MODES, f"mode must be one of {_MODES}, got {mode!r}"
    for boxes in (bboxes1, bboxes2):
        assert boxes.size(-1) == 4 or boxes.size(0) == 0, f"boxes are (n, 4), not {boxes.shape}"
    assert offset in (0, 1), f"offset must be 0 or 1, got {offset!r}"
    rows, columns = bboxes1.size(0), bboxes2.size(0)
    assert not aligned or rows == columns, f"aligned boxes: {rows} and {columns} are no pairs"
    if rows * columns == 0:
        return bboxes1.new_zeros(rows) if aligned else bboxes1.new_zeros((rows, columns))
    first = bboxes1 if aligned else bboxes1[:, None]
    corner = torch.max(first[..., :2], bboxes2[..., :2])
    sides = (torch.min(first[..., 2:], bboxes2[..., 2:]) - corner + offset).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    base = _area(first, offset)
    if mode == "iou":
        base = base + _area(bboxes2, offset) - shared
    return shared / base


def _area(boxes: Tensor, offset: int) -> Tensor:
    sides = boxes[..., 2:] - boxes[..., :2] + offset
    return sides[..., 0] * sides[..., 1]


@torch.no_grad()
def box_iou_rotated(
    bboxes1: Tensor,
    bboxes2: Tensor,
    mode: str = "iou",
    aligned: bool = False,
    clockwise: bool = True,
) -> Tensor:
    """Return the overlap of each rotated box of one list with each of another, without gradients.

    Args:
        bboxes1: Boxes (centre x, centre y, width, height, angle in radian), of shape (m, 5).
        bboxes2: Boxes of shape (n, 5).
        mode: ``"iou"`` divides the intersection by the union, ``"iof"`` by the area of the first.
        aligned: Compare the boxes pair by pair: the result has the shape (m,), else (m, n).
        clockwise: Whether a positive angle turns a box clockwise in the image.
    """
    assert mode in _MODES, f"mode must be one of {_MODES}, got {mode!r}"
    if aligned:
        return _rotated_overlaps(bboxes1, bboxes2, mode, clockwise).to(bboxes1.dtype)
    result = bboxes1.new_zeros(bboxes1.size(0), bboxes2.size(0))
    rows = max(_PAIRS_AT_ONCE // max(bboxes2.size(0), 1), 1)
    for start in range(0, bboxes1.size(0), rows):
        part = bboxes1[start : start + rows, None].expand(-1, bboxes2.size(0), -1)
        result[start : start + rows] = _rotated_overlaps(part, bboxes2, mode, clockwise)
    return result


def _rotated_overlaps(boxes1: Tensor, boxes2: Tensor, mode: str, clockwise: bool) -> Tensor:
    centre = (boxes1[..., :2].double() + boxes2[..., :2].double()) / 2
    corners1 = _corners(boxes1.double(), centre, clockwise)
    corners2 = _corners(boxes2.double(), centre, clockwise)
    shared = _shared_area(corners1, corners2)
    area1 = boxes1[..., 2].double() * boxes1[..., 3].double()
    area2 = boxes2[..., 2].double() * boxes2[..., 3].double()
    base = area1 + area2 - shared if mode == "iou" else area1.expand_as(shared)
    flat = (area1 < 1e-14) | (area2 < 1e-14)
    return torch.where(flat, torch.zeros_like(shared), shared / base)


def _corners(boxes: Tensor, origin: Tensor, clockwise: bool) -> Tensor:
    """Return the four corners (..., 4, 2) in order, relative to an origin."""
    angle = boxes[..., 4] if clockwise else -boxes[..., 4]
    along = torch.stack([angle.cos(), angle.sin()], -1) * boxes[..., 2:3] / 2
    across = torch.stack([-angle.sin(), angle.cos()], -1) * boxes[..., 3:4] / 2
    sides = [-along - across, along - across, along + across, across - along]
    return torch.stack(sides, -2) + (boxes[..., :2] - origin).unsqueeze(-2)


def _shared_area(corners1: Tensor, corners2: Tensor) -> Tensor:
    """Return the area of the intersection of convex quadrilaterals.

    Its corners are among the corners of each that are inside the other and the crossings of edges.
    """
    crossings, crossed = _crossings(corners1, corners2)
    points = torch.cat([corners1, corners2, crossings], -2)
    valid = torch.cat([_inside(corners1, corners2), _inside(corners2, corners1), crossed], -1)
    # points that are no corners are replaced by one that is: it adds no area
    first = valid.long().argmax(-1, keepdim=True).unsqueeze(-1).expand(*valid.shape[:-1], 1, 2)
    points = torch.where(valid.unsqueeze(-1), points, points.gather(-2, first))
    relative = points - points.mean(-2, keepdim=True)
    order = torch.atan2(relative[..., 1], relative[..., 0]).argsort(-1)
    ring = relative.gather(-2, order.unsqueeze(-1).expand_as(relative))
    area = _cross(ring, ring.roll(-1, -2)).sum(-1).abs() / 2
    return torch.where(valid.sum(-1) > 2, area, torch.zeros_like(area))


def _inside(points: Tensor, corners: Tensor) -> Tensor:
    """Return which of the points are inside a convex polygon, or on its border."""
    edges = corners.roll(-1, -2) - corners
    sides = _cross(edges.unsqueeze(-3), points.unsqueeze(-2) - corners.unsqueeze(-3))
    scale = edges.square().sum(-1).sum(-1)[..., None, None]
    return (sides >= -_TOLERANCE * scale).all(-1)


def _crossings(corners1: Tensor, corners2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points where edges cross, and which pairs of edges do."""
    edges1 = (corners1.roll(-1, -2) - corners1).unsqueeze(-2)
    edges2 = (corners2.roll(-1, -2) - corners2).unsqueeze(-3)
    between = corners2.unsqueeze(-3) - corners1.unsqueeze(-2)
    slope = _cross(edges1, edges2)
    parallel = slope.abs() <= 1e-14
    slope = slope.masked_fill(parallel, 1.0)
    at1, at2 = _cross(between, edges2) / slope, _cross(between, edges1) / slope
    crossed = (at1 >= 0) & (at1 <= 1) & (at2 >= 0) & (at2 <= 1) & ~parallel
    points = corners1.unsqueeze(-2) + edges1 * at1.unsqueeze(-1)
    return points.flatten(-3, -2), crossed.flatten(-2)


def _cross(first: Tensor, second: Tensor) -> Tensor:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
