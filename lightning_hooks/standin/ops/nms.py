"""Suppress boxes that overlap with a better one, in mmcv's variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lightning_hooks.standin.ops.backend import torchvision_ops
from lightning_hooks.standin.ops.boxes import bbox_overlaps, box_iou_rotated
from lightning_hooks.standin.utils.misc import deprecated_api_warning

__all__ = ["array_like_type", "batched_nms", "nms", "nms_match", "nms_rotated", "soft_nms"]

Array: TypeAlias = np.ndarray[Any, Any]
array_like_type: TypeAlias = Tensor | Array

_BLOCK = 512


@deprecated_api_warning({"iou_thr": "iou_threshold"})
def nms(
    boxes: array_like_type,
    scores: array_like_type,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
) -> tuple[array_like_type, array_like_type]:
    """Keep the boxes that overlap with no better one, best first.

    Args:
        boxes: Boxes (x1, y1, x2, y2), of shape (n, 4): a tensor or an array.
        scores: Their scores, of shape (n,).
        iou_threshold: An overlap above this suppresses the worse box.
        offset: A box is ``x2 - x1 + offset`` wide.
        score_threshold: If positive, only boxes with a higher score take part.
        max_num: If positive, how many boxes to return at most.

    Returns:
        The kept boxes with their scores, (k, 5), and their indices, as tensors or arrays.
    """
    is_array = isinstance(boxes, np.ndarray)
    boxes, scores = _checked(boxes, scores, offset)
    candidates = None
    found, points = boxes.detach(), scores.detach()
    if score_threshold > 0:
        candidates = torch.nonzero(points > score_threshold).squeeze(1)
        found, points = found[candidates], points[candidates]
    kept = _keep(found, points, float(np.float32(iou_threshold)), offset)
    kept = kept[:max_num] if max_num > 0 else kept
    kept = kept if candidates is None else candidates[kept]
    detections = torch.cat((boxes[kept], scores[kept].reshape(-1, 1)), dim=1)
    return (detections.cpu().numpy(), kept.cpu().numpy()) if is_array else (detections, kept)


def _checked(boxes: Any, scores: Any, offset: int) -> tuple[Tensor, Tensor]:
    """Return boxes and scores as tensors."""
    for given in (boxes, scores):
        assert isinstance(given, (Tensor, np.ndarray)), f"expected a tensor or array, got {given!r}"
    boxes = torch.from_numpy(boxes) if isinstance(boxes, np.ndarray) else boxes
    scores = torch.from_numpy(scores) if isinstance(scores, np.ndarray) else scores
    assert boxes.size(1) == 4, f"boxes must have the shape (n, 4), got {tuple(boxes.shape)}"
    assert boxes.size(0) == scores.size(0), f"{boxes.size(0)} boxes, {scores.size(0)} scores"
    assert offset in (0, 1), f"offset must be 0 or 1, got {offset!r}"
    return boxes, scores


def _keep(boxes: Tensor, scores: Tensor, threshold: float, offset: int) -> Tensor:
    compiled = torchvision_ops()
    if compiled is not None and offset == 0 and boxes.dtype == scores.dtype:
        kept: Tensor = compiled.nms(boxes, scores, threshold)
        return kept
    boxes = boxes if boxes.dtype == torch.float64 else boxes.float()

    def overlapping(rows: Tensor, columns: Tensor) -> Tensor:
        return bbox_overlaps(boxes[rows], boxes[columns], offset=offset) > threshold

    return _suppress(scores.sort(descending=True).indices, overlapping)


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


@deprecated_api_warning({"iou_thr": "iou_threshold"})
def soft_nms(
    boxes: array_like_type,
    scores: array_like_type,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: str = "linear",
    offset: int = 0,
) -> tuple[array_like_type, array_like_type]:
    """Lower the scores of boxes that overlap with a better one; drop those with a low score.

    Args:
        boxes: Boxes (x1, y1, x2, y2), of shape (n, 4): a tensor or an array.
        scores: Their scores, of shape (n,).
        iou_threshold: Overlaps from this on count; ``"gaussian"`` does not read it.
        sigma: The width of ``"gaussian"``.
        min_score: Boxes whose score falls below are dropped.
        method: ``"naive"``: the factor is 0. ``"linear"``: 1 - overlap. ``"gaussian"``:
            exp(-overlap² / sigma), for any overlap.
        offset: A box is ``x2 - x1 + offset`` wide.

    Returns:
        The kept boxes with their new scores, (k, 5), best first, and their indices.
    """
    is_array = isinstance(boxes, np.ndarray)
    boxes, scores = _checked(boxes, scores, offset)
    methods = ("naive", "linear", "gaussian")
    assert method in methods, f"method must be one of {methods}, got {method!r}"
    rows = torch.cat([boxes.detach(), scores.detach().to(boxes)[:, None]], 1).cpu()
    rows_left = rows.numpy() if rows.dtype == torch.float64 else rows.float().numpy()
    indices = np.arange(len(rows_left))
    kept, kept_indices = [rows_left[:0]], [indices[:0]]
    while len(rows_left):
        # mmcv's order among equal scores: the best changes places with the first
        best = int(rows_left[:, 4].argmax())
        rows_left[[0, best]], indices[[0, best]] = rows_left[[best, 0]], indices[[best, 0]]
        kept.append(rows_left[:1])
        kept_indices.append(indices[:1])
        first, rows_left, indices = rows_left[0], rows_left[1:], indices[1:]
        overlaps = _overlaps_with(first, rows_left, offset)
        if method == "gaussian":
            factors = np.exp(-(overlaps * overlaps) / rows_left.dtype.type(sigma))
        else:
            lowered = 1 - overlaps if method == "linear" else np.zeros_like(overlaps)
            factors = np.where(overlaps >= np.float32(iou_threshold), lowered, 1)
        rows_left[:, 4] *= factors
        order = _order_after_drops(rows_left[:, 4] >= np.float32(min_score))
        rows_left, indices = rows_left[order], indices[order]
    detections, found = np.concatenate(kept), np.concatenate(kept_indices)
    if is_array:
        return detections, found
    return torch.from_numpy(detections).to(boxes), torch.from_numpy(found).to(boxes.device)


def _overlaps_with(box: Array, others: Array, offset: int) -> Array:
    both = torch.from_numpy(box[None, :4]), torch.from_numpy(others[:, :4])
    found: Array = bbox_overlaps(*both, offset=offset)[0].numpy()
    return found


def _order_after_drops(alive: Array) -> Array:
    """Return the indices of the living, as mmcv leaves them: the last moves to a gap."""
    count = int(alive.sum())
    order = np.arange(count)
    gaps = np.flatnonzero(~alive[:count])
    order[gaps] = (count + np.flatnonzero(alive[count:]))[::-1]
    return order


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor,
    nms_cfg: dict[str, Any] | None,
    class_agnostic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Suppress boxes within each group, best first: boxes of other groups are moved far away.

    Args:
        boxes: Boxes of shape (n, 4), or rotated ones of shape (n, 5).
        scores: Their scores, of shape (n,).
        idxs: The group of each box, as its class or its level.
        nms_cfg: ``type`` (the name of a function of this module; ``"nms"``) and its arguments. Of
            ``split_thr`` boxes on (10000), the groups are treated one by one. None sorts only.
        class_agnostic: Take all boxes as one group.

    Returns:
        The kept boxes with their scores, and their indices.
    """
    if nms_cfg is None:
        scores, order = scores.sort(descending=True)
        return torch.cat([boxes[order], scores[:, None]], -1), order
    cfg = dict(nms_cfg)
    agnostic = cfg.pop("class_agnostic", class_agnostic)
    apart = boxes if agnostic else _moved_apart(boxes, idxs)
    kind = cfg.pop("type", "nms")
    if kind not in _BY_NAME:
        raise NameError(f"nms_cfg['type'] must be one of {', '.join(_BY_NAME)}, got {kind!r}")
    operator = _BY_NAME[kind]
    split = cfg.pop("split_thr", 10000)
    if len(apart) < split or torch.onnx.is_in_onnx_export():
        detections, kept = operator(apart, scores, **cfg)
        return torch.cat([boxes[kept], detections[:, -1:]], -1), kept
    limit = cfg.pop("max_num", -1)
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    lowered = torch.zeros_like(scores)
    for group in torch.unique(idxs):
        members = torch.nonzero(idxs == group).view(-1)
        detections, kept = operator(apart[members], scores[members], **cfg)
        chosen[members[kept]] = True
        lowered[members[kept]] = detections[:, -1]
    kept = torch.nonzero(chosen).view(-1)
    scores, order = lowered[kept].sort(descending=True)
    kept = kept[order]
    if limit > 0:
        kept, scores = kept[:limit], scores[:limit]
    return torch.cat([boxes[kept], scores[:, None]], -1), kept


def _moved_apart(boxes: Tensor, idxs: Tensor) -> Tensor:
    if boxes.size(-1) == 5:  # of rotated boxes the centres move
        reach = boxes[..., :2].max() + boxes[..., 2:4].max() + 1
        moved = boxes[..., :2] + (idxs.to(boxes) * reach)[:, None]
        return torch.cat([moved, boxes[..., 2:5]], dim=-1)
    return boxes + (idxs.to(boxes) * (boxes.max() + 1))[:, None]


def nms_match(dets: array_like_type, iou_threshold: float) -> list[array_like_type]:
    """Group boxes: each that :func:`nms` would keep, with those that it suppresses.

    Args:
        dets: Boxes with scores, of shape (n, 5): a tensor or an array.
        iou_threshold: An overlap from this on suppresses the worse box.

    Returns:
        The indices of each group, best first.
    """
    groups: list[list[int]] = []
    if dets.shape[0]:
        assert dets.shape[-1] == 5, f"dets must have the shape (n, 5), got {dets.shape}"
        rows = dets.detach().cpu() if isinstance(dets, Tensor) else torch.from_numpy(dets)
        left = rows[:, 4].sort(descending=True).indices
        while len(left):
            over = bbox_overlaps(rows[left[:1], :4], rows[left, :4])[0] >= np.float32(iou_threshold)
            over[0] = True  # an empty box overlaps with nothing, not even with itself
            groups.append(left[over].tolist())
            left = left[~over]
    if isinstance(dets, Tensor):
        return [dets.new_tensor(group, dtype=torch.long) for group in groups]
    return [np.array(group, dtype=int) for group in groups]


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    iou_threshold: float,
    labels: Tensor | None = None,
    clockwise: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Keep the rotated boxes that overlap with no better one, best first.

    Args:
        dets: Boxes (centre x, centre y, width, height, angle in radian), of shape (n, 5).
        scores: Their scores, of shape (n,).
        iou_threshold: An overlap above this suppresses the worse box.
        labels: Boxes of different labels do not suppress one another.
        clockwise: Whether a positive angle turns a box clockwise in the image.

    Returns:
        The kept boxes with their scores, (k, 6), and their indices; of no boxes, them and None.
    """
    if dets.shape[0] == 0:
        return dets, None

    def overlapping(rows: Tensor, columns: Tensor) -> Tensor:
        over = box_iou_rotated(dets[rows], dets[columns], clockwise=clockwise) > iou_threshold
        return over if labels is None else over & (labels[rows][:, None] == labels[columns])

    kept = _suppress(scores.sort(descending=True).indices, overlapping)
    return torch.cat((dets[kept], scores[kept].reshape(-1, 1)), dim=1), kept


_BY_NAME: dict[str, Any] = {
    "nms": nms, "soft_nms": soft_nms, "nms_match": nms_match, "nms_rotated": nms_rotated
}  # fmt: skip
