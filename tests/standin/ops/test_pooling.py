"""Pooling of regions, against loops over bins and samples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from support.standin import needs_lite

pytestmark = needs_lite

ROIS = [
    [0, 1.0, 2.0, 13.0, 9.0],
    [1, -6.0, -3.0, 40.0, 7.5],  # beyond the map
    [0, 5.0, 5.0, 5.4, 5.3],  # less than a pixel
    [1, 100.0, 100.0, 120.0, 110.0],  # outside
    [1, 0.0, 0.0, 23.0, 17.0],
]


def maps(seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, 9, 12, generator=generator, dtype=dtype)


def sample(plane: torch.Tensor, y: float, x: float) -> float:
    """Return a bilinear sample; up to one pixel beyond the map, the border repeats."""
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    total = 0.0
    for row in range(height):
        for column in range(width):
            weight = max(0.0, 1 - abs(y - row)) * max(0.0, 1 - abs(x - column))
            total += weight * float(plane[row, column])
    return total


def slow_roi_align(
    features: torch.Tensor, rois: Any, size: Any, scale: float, ratio: int, aligned: bool
) -> torch.Tensor:
    result = torch.zeros(len(rois), features.size(1), *size, dtype=features.dtype)
    for k, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (value * scale - (0.5 if aligned else 0) for value in corners)
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        bin_height, bin_width = height / size[0], width / size[1]
        rows, columns = ratio or math.ceil(bin_height), ratio or math.ceil(bin_width)
        for c in range(features.size(1)):
            for row in range(size[0]):
                for column in range(size[1]):
                    values = [
                        sample(
                            features[int(image), c],
                            y1 + (row + (i + 0.5) / rows) * bin_height,
                            x1 + (column + (j + 0.5) / columns) * bin_width,
                        )
                        for i in range(rows)
                        for j in range(columns)
                    ]
                    result[k, c, row, column] = sum(values) / len(values)
    return result


@pytest.mark.parametrize(("ratio", "aligned"), [(0, True), (0, False), (2, False)])
def test_roi_align_takes_the_samples_of_a_loop(ops: Any, ratio: int, aligned: bool) -> None:
    features, rois = maps(), torch.tensor(ROIS, dtype=torch.float64)
    layer = ops.RoIAlign((2, 3), 0.5, ratio, "avg", aligned)
    expected = slow_roi_align(features, ROIS, (2, 3), 0.5, ratio, aligned)
    torch.testing.assert_close(layer(features, rois), expected)
    single = layer(features.float(), rois.float())
    torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=1e-5)
    features = features.requires_grad_()
    assert gradcheck(lambda given: layer(given, rois[:3]), (features,), fast_mode=True)


def test_roi_align_without_regions_and_with_a_region_of_no_size(ops: Any) -> None:
    features = maps(dtype=torch.float32).requires_grad_()
    layer = ops.RoIAlign(2)
    empty = layer(features, torch.zeros(0, 5))
    assert empty.shape == (0, 3, 2, 2)
    empty.sum().backward()
    point = layer(features, torch.tensor([[0.0, 3, 3, 3, 3]]))
    assert torch.equal(point, torch.zeros(1, 3, 2, 2)), "no sample"
    point.sum().backward()
    assert torch.equal(torch.as_tensor(features.grad), torch.zeros_like(features))
    with pytest.raises(NotImplementedError, match="pool_mode='avg' only"):
        ops.roi_align(features, torch.zeros(1, 5), 2, 1.0, 0, "max")


def test_roi_align_of_many_regions_is_that_of_each_alone(ops: Any) -> None:
    features = maps()
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(40, 2, generator=generator) * 6
    sides = torch.rand(40, 2, generator=generator) * 8
    rois = torch.cat([torch.arange(40)[:, None] % 2, corner, corner + sides], 1).double()
    alone = torch.cat([ops.roi_align(features, roi[None], 3) for roi in rois])
    torch.testing.assert_close(ops.roi_align(features, rois, 3), alone)
    assert gradcheck(
        lambda given: ops.roi_align(given, rois, 3), features.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("clockwise", [True, False])
def test_rotated_roi_align_samples_a_turned_grid(ops: Any, clockwise: bool) -> None:
    features = maps()
    x, y, width, height, angle = 11.0, 8.0, 10.0, 6.0, 0.6
    rois = torch.tensor([[1, x, y, width, height, angle]], dtype=torch.float64)
    layer = ops.RoIAlignRotated((2, 2), 0.5, 2, aligned=True, clockwise=clockwise)
    turn = -angle if clockwise else angle
    expected = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    for c, row, column in torch.cartesian_prod(*map(torch.arange, (3, 2, 2))).tolist():
        values = []
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            dy = ((row + (i + 0.5) / 2) / 2 - 0.5) * height * 0.5
            dx = ((column + (j + 0.5) / 2) / 2 - 0.5) * width * 0.5
            at_y = dy * math.cos(turn) - dx * math.sin(turn) + y * 0.5 - 0.5
            at_x = dy * math.sin(turn) + dx * math.cos(turn) + x * 0.5 - 0.5
            values.append(sample(features[1, c], at_y, at_x))
        expected[0, c, row, column] = sum(values) / 4
    torch.testing.assert_close(layer(features, rois), expected)
    features = features.requires_grad_()
    assert gradcheck(lambda given: layer(given, rois), (features,), fast_mode=True)
    straight = torch.tensor([[0, 8.0, 7.0, 10.0, 6.0, 0.0]], dtype=torch.float64)
    box = torch.tensor([[0, 3.0, 4.0, 13.0, 10.0]], dtype=torch.float64)
    torch.testing.assert_close(layer(features, straight), ops.roi_align(features, box, 2, 0.5, 2))


def test_points_are_sampled_as_regions_with_one_sample_per_bin(ops: Any) -> None:
    features, rois = maps(), torch.tensor([ROIS[0], ROIS[4]], dtype=torch.float64)
    pooled = ops.SimpleRoIAlign((2, 3), 0.5)(features, rois)
    inside = slow_roi_align(features, [ROIS[0]], (2, 3), 0.5, 1, True)
    torch.testing.assert_close(pooled[:1], inside, rtol=1e-5, atol=1e-5)
    points = torch.tensor([[[0.25, 0.5], [0.75, 1.0]]])
    image = ops.rel_roi_point_to_rel_img_point(rois[:1], points, features, 0.5)
    assert image.tolist() == [[[4.0 / 24, 5.5 / 18], [10.0 / 24, 9.0 / 18]]]
    sampled = ops.point_sample(features[:1], image)
    assert float(sampled[0, 0, 0]) == pytest.approx(sample(features[0, 0], 2.25, 1.5))


def test_torchvisions_pooling_is_called_where_torchvision_is(
    ops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, rois = maps().requires_grad_(), torch.tensor(ROIS, dtype=torch.float64)
    plain = ops.roi_align(features, rois, 2)
    plain.sum().backward()
    expected, calls = torch.as_tensor(features.grad).clone(), []
    kernel = torch.ones(1, 1, 1, 1, dtype=torch.float64)

    class Compiled:
        @staticmethod
        def roi_align(input: torch.Tensor, *arguments: Any) -> torch.Tensor:
            calls.append(arguments[1:])
            total = expected.sum((2, 3)) / 1  # any differentiable function of the maps will do
            return (input.mean() * kernel + total.mean() * 0).expand(len(ROIS), 3, 2, 2)

    monkeypatch.setattr("lightning_hooks.standin.ops.operators.torchvision_ops", lambda: Compiled)
    features.grad = None
    ops.roi_align(features, rois, 2).sum().backward()
    assert calls == [((2, 2), 1.0, 0, True)] * 2, "forward, and once more for the gradient"
    torch.testing.assert_close(
        torch.as_tensor(features.grad), torch.full_like(features, plain.numel() / features.numel())
    )
