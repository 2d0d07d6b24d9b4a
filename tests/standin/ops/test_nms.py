"""Suppression of overlapping boxes, against loops over pairs of boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from support.standin import needs_lite

pytestmark = needs_lite


def boxes_and_scores(count: int, seed: int = 0, size: float = 30.0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    corner = generator.uniform(0, 60, (count, 2))
    boxes = np.concatenate([corner, corner + generator.uniform(1, size, (count, 2))], 1)
    # a permutation of distinct scores: the order is the same everywhere
    scores = generator.permutation(count) / (count + 1) + 0.01
    return boxes.astype(np.float32), scores.astype(np.float32)


def overlap(one: Any, other: Any, offset: int = 0) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0]) + offset
    height = min(one[3], other[3]) - max(one[1], other[1]) + offset
    shared = max(width, 0) * max(height, 0)
    area = [(box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (one, other)]
    return float(shared / (area[0] + area[1] - shared))


def slow_nms(boxes: Any, scores: Any, threshold: float, offset: int = 0) -> list[int]:
    kept: list[int] = []
    for index in np.argsort(-scores):
        if all(overlap(boxes[better], boxes[index], offset) <= threshold for better in kept):
            kept.append(int(index))
    return kept


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_nms_keeps_what_a_loop_over_pairs_keeps(ops: Any, count: int, offset: int) -> None:
    boxes, scores = boxes_and_scores(count, size=12.0)
    detections, kept = ops.nms(boxes, scores, 0.3, offset=offset)
    assert isinstance(detections, np.ndarray)
    assert list(kept) == slow_nms(boxes, scores, 0.3, offset)
    np.testing.assert_array_equal(detections, np.c_[boxes, scores][kept])


def test_a_long_chain_of_boxes_each_suppressing_the_next_keeps_every_second(ops: Any) -> None:
    left = torch.arange(60.0)
    boxes = torch.stack([left, left * 0, left + 1.9, left * 0 + 1], 1)
    _, kept = ops.nms(boxes, torch.linspace(1, 0.1, 60), 0.3)
    assert torch.as_tensor(kept).tolist() == list(range(0, 60, 2))


def test_of_boxes_with_equal_scores_the_first_is_kept(ops: Any) -> None:
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 5]]).repeat(40, 1)
    _, kept = ops.nms(boxes, torch.ones(80), 0.85)
    assert kept.tolist() == [0, 1]


def test_nms_with_a_lowest_score_and_a_largest_number(ops: Any) -> None:
    boxes, scores = boxes_and_scores(50)
    _, kept = ops.nms(
        torch.tensor(boxes), torch.tensor(scores), 0.5, score_threshold=0.4, max_num=4
    )
    high = np.flatnonzero(scores > 0.4)
    expected = high[slow_nms(boxes[high], scores[high], 0.5)][:4]
    assert torch.as_tensor(kept).tolist() == expected.tolist()


def test_nms_passes_the_gradient_to_kept_boxes_and_takes_the_old_name_of_the_threshold(
    ops: Any,
) -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9]], requires_grad=True)
    with pytest.warns(DeprecationWarning, match="iou_thr"):
        detections, _ = ops.nms(boxes, torch.tensor([0.9, 0.8]), iou_thr=0.5)
    detections.sum().backward()
    assert boxes.grad is not None
    assert boxes.grad.tolist() == [[1.0] * 4, [0.0] * 4]


def test_wrong_arguments_are_refused_as_by_mmcv(ops: Any) -> None:
    boxes, scores = torch.zeros(2, 4), torch.zeros(2)
    for arguments in (
        (boxes.tolist(), scores, 0.5),
        (boxes[:, :3], scores, 0.5),
        (boxes, scores[:1], 0.5),
        (boxes, scores, 0.5, 2),
    ):
        with pytest.raises(AssertionError):
            ops.nms(*arguments)
    with pytest.raises(NameError, match="fast_nms"):
        ops.batched_nms(boxes, scores, scores, {"type": "fast_nms"})


def test_batched_nms_suppresses_within_a_group_only(ops: Any) -> None:
    boxes, scores = (torch.tensor(values) for values in boxes_and_scores(60))
    groups = torch.arange(60) % 3
    expected = []
    for group in range(3):
        members = torch.nonzero(groups == group).view(-1)
        expected += members[slow_nms(boxes[members].numpy(), scores[members].numpy(), 0.3)].tolist()
    expected.sort(key=lambda index: -float(scores[index]))
    cfg = {"type": "nms", "iou_threshold": 0.3}
    detections, kept = ops.batched_nms(boxes, scores, groups, cfg)
    assert kept.tolist() == expected
    assert torch.equal(detections, torch.cat([boxes, scores[:, None]], 1)[kept])
    assert cfg == {"type": "nms", "iou_threshold": 0.3}, "the config is not changed"
    # one by one from split_thr boxes on; max_num counts all groups together
    split = ops.batched_nms(boxes, scores, groups, {**cfg, "split_thr": 10, "max_num": 5})
    assert split[1].tolist() == expected[:5]
    # without regard to the groups, by argument and by config
    alone = slow_nms(boxes.numpy(), scores.numpy(), 0.3)
    assert ops.batched_nms(boxes, scores, groups, cfg, class_agnostic=True)[1].tolist() == alone
    agnostic = ops.batched_nms(boxes, scores, groups, {**cfg, "class_agnostic": True})
    assert agnostic[1].tolist() == alone
    # sorted only
    assert torch.equal(
        ops.batched_nms(boxes, scores, groups, None)[0][:, 4], scores.sort()[0].flip(0)
    )


def painted(box: Any, points: Any, clockwise: bool) -> Any:
    """Return which points are inside a rotated box, by rotating the points back."""
    x, y, width, height, angle = box
    angle = angle if clockwise else -angle
    dx, dy = points[..., 0] - x, points[..., 1] - y
    along, across = (
        dx * math.cos(angle) + dy * math.sin(angle),
        dy * math.cos(angle) - dx * math.sin(angle),
    )
    return (abs(along) <= width / 2) & (abs(across) <= height / 2)


@pytest.mark.parametrize("clockwise", [True, False])
def test_overlaps_of_rotated_boxes_are_those_of_painted_ones(ops: Any, clockwise: bool) -> None:
    generator = np.random.default_rng(3)
    first, second = (
        np.c_[generator.uniform(3, 7, (4, 2)), generator.uniform(2, 6, (4, 2)), angles]
        for angles in generator.uniform(-3, 3, (2, 4))
    )
    axis = np.linspace(-2, 12, 561)
    points = np.stack(np.meshgrid(axis, axis), -1)
    result = ops.box_iou_rotated(torch.tensor(first), torch.tensor(second), clockwise=clockwise)
    foreground = ops.box_iou_rotated(
        torch.tensor(first), torch.tensor(second), "iof", clockwise=clockwise
    )
    for row, one in enumerate(first):
        for column, two in enumerate(second):
            inside = painted(one, points, clockwise), painted(two, points, clockwise)
            both = (inside[0] & inside[1]).sum()
            assert result[row, column] == pytest.approx(
                both / (inside[0] | inside[1]).sum(), abs=0.01
            )
            assert foreground[row, column] == pytest.approx(both / inside[0].sum(), abs=0.01)
    pairs = ops.box_iou_rotated(
        torch.tensor(first), torch.tensor(second), aligned=True, clockwise=clockwise
    )
    torch.testing.assert_close(pairs, result.diagonal())


def test_rotated_boxes_at_the_edges_of_the_formula(ops: Any) -> None:
    box = torch.tensor([[5.0, 5.0, 4.0, 2.0, 0.7]])
    quarter = torch.tensor([[5.0, 5.0, 2.0, 4.0, 0.7 + math.pi / 2]])
    inner = torch.tensor([[5.0, 5.0, 2.0, 1.0, 0.7]])
    far = torch.tensor([[50.0, 5.0, 4.0, 2.0, 0.7]])
    flat = torch.tensor([[5.0, 5.0, 4.0, 0.0, 0.7]])
    others = torch.cat([box, quarter, inner, far, flat])
    torch.testing.assert_close(
        ops.box_iou_rotated(box, others), torch.tensor([[1.0, 1.0, 0.25, 0.0, 0.0]])
    )
    touching = torch.tensor([[2.0, 2.0, 2.0, 2.0, 0.0], [4.0, 2.0, 2.0, 2.0, 0.0]])
    assert ops.box_iou_rotated(touching[:1], touching[1:]).item() == pytest.approx(0, abs=1e-6)
    assert ops.box_iou_rotated(box[:0], others).shape == (0, 5)
    scored = torch.cat([box, torch.ones(1, 1)], 1)  # as in mmrotate's evaluations
    assert ops.box_iou_rotated(scored, box).item() == pytest.approx(1)


def test_rotated_boxes_without_rotation_overlap_as_straight_ones(ops: Any) -> None:
    boxes = torch.tensor(boxes_and_scores(30)[0])
    turned = torch.cat(
        [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], torch.zeros(30, 1)], 1
    )
    expected = torch.tensor([[overlap(one, other) for other in boxes] for one in boxes])
    torch.testing.assert_close(ops.box_iou_rotated(turned, turned), expected, rtol=1e-4, atol=1e-5)


def test_nms_of_rotated_boxes_and_of_their_groups(ops: Any) -> None:
    dets = torch.tensor(
        [[5.0, 5, 4, 2, 0.1], [5, 5, 4, 2, 0.2], [5, 5, 4, 2, 1.6], [20, 20, 4, 2, 0.1]]
    )
    scores = torch.tensor([0.6, 0.9, 0.8, 0.7])
    kept, indices = ops.nms_rotated(dets, scores, 0.5)
    assert indices is not None
    assert indices.tolist() == [1, 2, 3]
    assert torch.equal(kept, torch.cat([dets, scores[:, None]], 1)[indices])
    _, apart = ops.nms_rotated(dets, scores, 0.5, labels=torch.tensor([0, 1, 0, 0]))
    assert apart is not None
    assert apart.tolist() == [1, 2, 3, 0]
    assert ops.nms_rotated(dets[:0], scores[:0], 0.5)[1] is None
    by_group = ops.batched_nms(
        dets, scores, torch.tensor([0, 1, 0, 0]), {"type": "nms_rotated", "iou_threshold": 0.5}
    )
    assert by_group[1].tolist() == [1, 2, 3, 0]


def test_torchvisions_operator_is_called_where_there_is_one(
    ops: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Compiled:
        calls: list[float] = []  # noqa: RUF012

        @classmethod
        def nms(cls, boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
            cls.calls.append(threshold)
            return torch.tensor(slow_nms(boxes.numpy(), scores.numpy(), threshold))

    boxes, scores = (torch.tensor(values) for values in boxes_and_scores(40))
    plain = ops.nms(boxes, scores, 0.3)
    monkeypatch.setattr("lightning_hooks.standin.ops.operators.torchvision_ops", lambda: Compiled)
    assert torch.equal(torch.as_tensor(ops.nms(boxes, scores, 0.3)[1]), torch.as_tensor(plain[1]))
    # mmcv compares in single precision
    assert Compiled.calls == [float(np.float32(0.3))]
    ops.nms(boxes, scores, 0.3, offset=1)
    assert len(Compiled.calls) == 1, "torchvision has no offset"
