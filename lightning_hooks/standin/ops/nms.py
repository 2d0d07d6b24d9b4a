"""Suppress boxes that overlap with a better one, in mmcv's variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lightning_hooks.standin.ops.backend import torchvision_ops
from lightning_hooks.standin.ops.boxes import bbox_overlaps, box_iou_quadri, box_iou_rotated

__all__ = ["nms", "nms_match", "nms_quadri", "nms_rotated", "softnms"]

Array: TypeAlias = np.ndarray[Any, Any]

_BLOCK = 512


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of boxes that no better one overlaps by more than a threshold, best first.

    Args:
        boxes: Boxes (x1, y1, x2, y2), of shape (n, 4).
        scores: Their scores, of shape (n,).
        iou_threshold: The threshold.
        offset: A box is ``x2 - x1 + offset`` wide.
    """
    boxes = boxes if boxes.dtype == torch.float64 else boxes.float()
    threshold = float(np.float32(iou_threshold))  # mmcv compares in single precision
    compiled = torchvision_ops() if offset == 0 else None
    if compiled is not None:
        kept: Tensor = compiled.nms(boxes, scores.to(boxes.dtype), threshold)
        return kept

    def overlapping(rows: Tensor, columns: Tensor) -> Tensor:
        return _overlaps(boxes[rows], boxes[columns], offset) > threshold

    # of equal scores the first goes before, as in torchvision; in mmcv it is any
    return _suppress(scores.sort(descending=True, stable=True).indices, overlapping)


def _overlaps(first: Tensor, second: Tensor, offset: int = 0) -> Tensor:
    ious = first.new_empty(len(first), len(second))
    bbox_overlaps(first, second, ious, mode=0, aligned=False, offset=offset)
    return ious


def _suppress(order: Tensor, overlapping: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return those of the indices, best first, that no kept better one overlaps.

    A block is compared with itself at once. In each round one more of its boxes, at least, is
    final; mostly two or three rounds are enough. What the block keeps suppresses all later ones.
    """
    kept = [order[:0]]
    while len(order):
        block, order = order[:_BLOCK], order[_BLOCK:]
        over = overlapping(block, block).triu(1)
        before, alive = None, torch.ones_like(block, dtype=torch.bool)
        while before is None or not torch.equal(before, alive):
            before, alive = alive, ~over[alive].any(0)
        kept.append(block[alive])
        order = order[~overlapping(kept[-1], order).any(0)]
    return torch.cat(kept)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Lower the scores of boxes that overlap with a better one; drop those with a low score.

    Args:
        boxes: Boxes (x1, y1, x2, y2), of shape (n, 4).
        scores: Their scores, of shape (n,).
        dets: Its first rows are filled with the kept boxes and their new scores, best first.
        iou_threshold: Overlaps from this on count; the third method does not read it.
        sigma: The width of the third method.
        min_score: Boxes whose score falls below are dropped.
        method: The factor: 0 is 0, 1 is 1 - overlap, 2 is exp(-overlap² / sigma).
        offset: A box is ``x2 - x1 + offset`` wide.

    Returns:
        The indices of the kept boxes.
    """
    left = torch.cat([boxes, scores[:, None]], 1).numpy()
    indices, found = np.arange(len(left)), list[int]()
    while len(left):
        # mmcv's order among equal scores: the best changes places with the first
        best = int(left[:, 4].argmax())
        left[[0, best]], indices[[0, best]] = left[[best, 0]], indices[[best, 0]]
        dets[len(found)] = torch.from_numpy(left[0])
        found.append(int(indices[0]))
        both = torch.from_numpy(left[:, :4])
        overlaps, left, indices = (
            _overlaps(both[:1], both[1:], offset)[0].numpy(),
            left[1:],
            indices[1:],
        )
        if method == 2:
            factors = np.exp(-(overlaps * overlaps) / left.dtype.type(sigma))
        else:
            lowered = 1 - overlaps if method == 1 else np.zeros_like(overlaps)
            factors = np.where(overlaps >= np.float32(iou_threshold), lowered, 1)
        left[:, 4] *= factors
        order = _order_after_drops(left[:, 4] >= np.float32(min_score))
        left, indices = left[order], indices[order]
    return torch.tensor(found, dtype=torch.long)


def _order_after_drops(alive: Array) -> Array:
    """Return the indices of the living, as mmcv leaves them: the last moves to a gap."""
    count = int(alive.sum())
    order = np.arange(count)
    gaps = np.flatnonzero(~alive[:count])
    order[gaps] = (count + np.flatnonzero(alive[count:]))[::-1]
    return order


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Group boxes: each that would be kept, with those that it suppresses; best first.

    Args:
        dets: Boxes with scores, of shape (n, 5).
        iou_threshold: An overlap from this on suppresses the worse box.
    """
    groups, left = [], dets[:, 4].sort(descending=True, stable=True).indices
    while len(left):
        over = _overlaps(dets[left[:1], :4], dets[left, :4])[0] >= np.float32(iou_threshold)
        over[0] = True  # an empty box overlaps with nothing, not even with itself
        groups.append(left[over].tolist())
        left = left[~over]
    return groups


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Return the indices of rotated boxes that no better one overlaps by more than a threshold.

    Args:
        dets: Boxes (centre x, centre y, width, height, angle), with labels behind them if
            ``multi_label``: boxes of different labels do not suppress one another.
        scores: Their scores, of shape (n,).
        order: The indices, best first.
        dets_sorted: Follows from them.
        labels: The labels once more.
        iou_threshold: The threshold.
        multi_label: Whether there are labels.
    """
    label = dets[:, -1] if multi_label else None
    return _suppress_polygons(box_iou_rotated, dets[:, :5], order, iou_threshold, label)


def nms_quadri(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Return the indices of quadrilaterals that no better one overlaps by more than a threshold.

    Args:
        dets: Quadrilaterals (x1, y1, ..., x4, y4), with labels behind them if ``multi_label``.
        scores: Their scores, of shape (n,).
        order: The indices, best first.
        dets_sorted: Follows from them.
        iou_threshold: The threshold.
        multi_label: Whether there are labels.
    """
    label = dets[:, -1] if multi_label else None
    return _suppress_polygons(box_iou_quadri, dets[:, :8], order, iou_threshold, label)


def _suppress_polygons(
    overlaps: Callable[..., None],
    boxes: Tensor,
    order: Tensor,
    iou_threshold: float,
    labels: Tensor | None,
) -> Tensor:
    def overlapping(rows: Tensor, columns: Tensor) -> Tensor:
        ious = boxes.new_empty(len(rows), len(columns))
        overlaps(boxes[rows], boxes[columns], ious, mode_flag=0, aligned=False)
        over = ious > iou_threshold
        return over if labels is None else over & (labels[rows][:, None] == labels[columns])

    return _suppress(order, overlapping)
