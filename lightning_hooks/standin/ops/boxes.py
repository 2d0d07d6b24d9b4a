"""Overlaps of boxes: intersection over union, of straight and rotated boxes and quadrilaterals."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["bbox_overlaps", "box_iou_quadri", "box_iou_rotated"]

_TOLERANCE = 1e-9
_PAIRS_AT_ONCE = 1 << 17


def bbox_overlaps(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int
) -> None:
    """Fill in the overlap of boxes (x1, y1, x2, y2).

    Args:
        bboxes1: Boxes of shape (m, 4).
        bboxes2: Boxes of shape (n, 4).
        ious: Filled, of shape (m, n); if aligned (m,), pair by pair.
        mode: 0 divides the intersection by the union, 1 by the area of the first.
        aligned: Compare pair by pair.
        offset: A box is ``x2 - x1 + offset`` wide.
    """
    first = bboxes1 if aligned else bboxes1[:, None]
    corner = torch.max(first[..., :2], bboxes2[..., :2])
    sides = (torch.min(first[..., 2:], bboxes2[..., 2:]) - corner + offset).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    base = _area(first, offset)
    if mode == 0:
        base = base + _area(bboxes2, offset) - shared
    ious.copy_(shared / base)


def _area(boxes: Tensor, offset: int) -> Tensor:
    sides = boxes[..., 2:] - boxes[..., :2] + offset
    return sides[..., 0] * sides[..., 1]


def box_iou_rotated(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool
) -> None:
    """Fill in the overlap of boxes (centre x, centre y, width, height, angle in radian).

    Args:
        bboxes1: Boxes of shape (m, 5); a positive angle turns them clockwise in the image.
        bboxes2: Boxes of shape (n, 5).
        ious: Filled, with m * n values row by row; if aligned (m,), pair by pair.
        mode_flag: 0 divides the intersection by the union, 1 by the area of the first.
        aligned: Compare pair by pair.
    """
    corners1, corners2 = _corners(bboxes1.double()), _corners(bboxes2.double())
    _fill(ious, corners1, corners2, mode_flag, aligned)


def box_iou_quadri(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool
) -> None:
    """Fill in the overlap of convex quadrilaterals (x1, y1, ..., x4, y4).

    Args:
        bboxes1: Corners in order, of shape (m, 8).
        bboxes2: Corners of shape (n, 8).
        ious: Filled, with m * n values row by row; if aligned (m,), pair by pair.
        mode_flag: 0 divides the intersection by the union, 1 by the area of the first.
        aligned: Compare pair by pair.
    """
    corners1, corners2 = (boxes.double().view(-1, 4, 2) for boxes in (bboxes1, bboxes2))
    _fill(ious, _same_way_round(corners1), _same_way_round(corners2), mode_flag, aligned)


def _fill(ious: Tensor, corners1: Tensor, corners2: Tensor, mode: int, aligned: bool) -> None:
    if aligned:
        ious.copy_(_overlaps(corners1, corners2, mode))
        return
    table = ious.view(len(corners1), len(corners2)).zero_()
    (centre1, radius1), (centre2, radius2) = _circle(corners1), _circle(corners2)
    distance = torch.cdist(centre1, centre2, compute_mode="donot_use_mm_for_euclid_dist")
    near = distance <= radius1[:, None] + radius2
    pairs = torch.nonzero(near)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        rows, columns = pairs[start : start + _PAIRS_AT_ONCE].T
        table[rows, columns] = _overlaps(corners1[rows], corners2[columns], mode).to(ious.dtype)


def _circle(corners: Tensor) -> tuple[Tensor, Tensor]:
    """Return centres (n, 2) and radii (n,) of circles around polygons."""
    centre = corners.mean(-2)
    return centre, (corners - centre[:, None]).norm(dim=-1).amax(-1)


def _overlaps(corners1: Tensor, corners2: Tensor, mode: int) -> Tensor:
    # coordinates relative to each pair: large ones would cost precision
    origin = (corners1.mean(-2, keepdim=True) + corners2.mean(-2, keepdim=True)) / 2
    shared = _shared_area(corners1 - origin, corners2 - origin)
    area1, area2 = _polygon_area(corners1), _polygon_area(corners2)
    base = area1 + area2 - shared if mode == 0 else area1.expand_as(shared)
    flat = (area1 < 1e-14) | (area2 < 1e-14)
    return torch.where(flat, torch.zeros_like(shared), shared / base)


def _corners(boxes: Tensor) -> Tensor:
    """Return the four corners (n, 4, 2) of rotated boxes, in order."""
    cos, sin = boxes[:, 4].cos(), boxes[:, 4].sin()
    along = torch.stack([cos, sin], -1) * boxes[:, 2:3] / 2
    across = torch.stack([-sin, cos], -1) * boxes[:, 3:4] / 2
    sides = [-along - across, along - across, along + across, across - along]
    return torch.stack(sides, -2) + boxes[:, None, :2]


def _same_way_round(corners: Tensor) -> Tensor:
    negative = _cross(corners, corners.roll(-1, -2)).sum(-1) < 0
    return torch.where(negative[..., None, None], corners.flip(-2), corners)


def _polygon_area(corners: Tensor) -> Tensor:
    return _cross(corners, corners.roll(-1, -2)).sum(-1).abs() / 2


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
    area = _polygon_area(ring)
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
