"""Deformable convolutions, against loops over positions, kernels and channels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional

from support.standin import needs_lite

pytestmark = needs_lite


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def sample(plane: torch.Tensor, y: float, x: float) -> float:
    """Return a bilinear sample of a zero-padded map."""
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for row, column in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= row < plane.size(0) and 0 <= column < plane.size(1):
            weight = (1 - abs(y - row)) * (1 - abs(x - column))
            total += weight * float(plane[row, column])
    return total


GEOMETRY = {
    "stride": (2, 1),
    "padding": (1, 0),
    "dilation": (1, 2),
    "groups": 2,
    "deform_groups": 2,
}
SHAPES = {"input": (2, 4, 5, 7), "offset": (2, 24, 3, 3), "mask": (2, 12, 3, 3)}


def slow_deform_conv(
    features: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """Convolve with a kernel of 2 x 3 under GEOMETRY: 2 groups of channels in both ways."""
    result = torch.zeros(2, 4, 3, 3, dtype=torch.float64)
    positions = itertools.product(range(2), range(4), range(3), range(3), range(2))
    for n, out, row, column, within in positions:
        channel = (out // 2) * 2 + within
        for i, j in itertools.product(range(2), range(3)):
            element = (channel // 2) * 6 + i * 3 + j
            y = row * 2 - 1 + i + float(offset[n, 2 * element, row, column])
            x = column * 1 - 0 + j * 2 + float(offset[n, 2 * element + 1, row, column])
            value = sample(features[n, channel], y, x) * float(mask[n, element, row, column])
            result[n, out, row, column] += value * weight[out, within, i, j]
    return result


def test_deformable_convolutions_are_those_of_a_loop(ops: Any) -> None:
    features, offset = random(*SHAPES["input"]), 2 * random(*SHAPES["offset"], seed=1)
    mask, weight = random(*SHAPES["mask"], seed=2), random(4, 2, 2, 3, seed=3)
    bias = random(4, seed=4)
    geometry = tuple(GEOMETRY.values())
    second = ops.modulated_deform_conv2d(features, offset, mask, weight, bias, *geometry)
    expected = slow_deform_conv(features, offset, mask, weight)
    torch.testing.assert_close(second, expected + bias.view(1, -1, 1, 1))
    first = ops.deform_conv2d(features, offset, weight, *geometry)
    torch.testing.assert_close(
        first, slow_deform_conv(features, offset, torch.ones_like(mask), weight)
    )
    inputs = [one.requires_grad_() for one in (features, offset, mask, weight, bias)]
    assert gradcheck(
        lambda *given: ops.modulated_deform_conv2d(*given, *geometry), inputs, fast_mode=True
    )
    inputs = [features, offset, weight]
    assert gradcheck(lambda *given: ops.deform_conv2d(*given, *geometry), inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["DCN", "DCNv2"])
def test_a_new_layer_convolves_as_a_plain_one(ops: Any, name: str) -> None:
    from mmcv.cnn import build_conv_layer

    layer = build_conv_layer(
        {"type": name, "deform_groups": 2}, 4, 6, 3, stride=2, padding=1, bias=False
    )
    features = torch.randn(2, 4, 6, 6)
    expected = functional.conv2d(features, layer.weight, stride=2, padding=1)
    # without offsets; the second version begins with factors of 1/2
    factor = 1 if name == "DCN" else 2
    torch.testing.assert_close(layer(features) * factor, expected, rtol=1e-4, atol=1e-5)
    layer(features).sum().backward()
    assert layer.conv_offset.weight.grad is not None
    numbers = 2 if name == "DCN" else 3
    assert {key: tuple(value.shape) for key, value in layer.state_dict().items()} == {
        "weight": (6, 4, 3, 3),
        "conv_offset.weight": (2 * 9 * numbers, 4, 3, 3),
        "conv_offset.bias": (2 * 9 * numbers,),
    }


@pytest.mark.parametrize("name", ["DCN", "DCNv2"])
def test_checkpoints_of_the_first_version_are_read(ops: Any, name: str) -> None:
    from mmcv.cnn import build_conv_layer
    from mmcv.runner import load_state_dict

    model, other = (
        torch.nn.Sequential(build_conv_layer({"type": name}, 2, 2, 3)) for _ in range(2)
    )
    torch.nn.init.normal_(other[0].conv_offset.weight)
    old = {key.replace("0.conv_offset", "0_offset"): one for key, one in other.state_dict().items()}
    assert "0_offset.weight" in old
    load_state_dict(model, old)  # a plain dict has no version
    assert torch.equal(model[0].conv_offset.weight, other[0].conv_offset.weight)


def test_the_offsets_have_a_learning_rate_of_their_own(ops: Any) -> None:
    from mmcv.runner import build_optimizer

    model = torch.nn.Sequential(ops.ModulatedDeformConv2dPack(2, 2, 3), torch.nn.Conv2d(2, 2, 1))
    rules = {"dcn_offset_lr_mult": 0.1, "bias_lr_mult": 2.0, "bias_decay_mult": 0.0}
    cfg = {"type": "SGD", "lr": 1.0, "weight_decay": 1.0, "paramwise_cfg": rules}
    names = [name for name, _ in model.named_parameters()]
    groups = build_optimizer(model, cfg).param_groups
    assert {
        name: (group["lr"], group["weight_decay"])
        for name, group in zip(names, groups, strict=True)
    } == {
        "0.weight": (1.0, 1.0),
        "0.bias": (2.0, 0.0),
        "0.conv_offset.weight": (0.1, 1.0),
        "0.conv_offset.bias": (0.1, 1.0),
        "1.weight": (1.0, 1.0),
        "1.bias": (2.0, 0.0),
    }


def test_maps_smaller_than_the_kernel_and_wrong_shapes(ops: Any) -> None:
    layer = ops.DeformConv2d(2, 2, 3, padding=1)
    assert layer(torch.randn(1, 2, 2, 2), torch.zeros(1, 18, 2, 2)).shape == (1, 2, 2, 2)
    with pytest.raises(RuntimeError, match="size of tensor"):
        layer(torch.randn(1, 2, 5, 5), torch.zeros(1, 18, 4, 5))
    with pytest.raises(ValueError, match="too small"):
        ops.deform_conv2d(
            torch.randn(1, 2, 2, 2), torch.zeros(1, 18, 1, 1), torch.zeros(2, 2, 3, 3)
        )
    with pytest.raises(AssertionError, match="im2col_step"):
        ops.deform_conv2d(
            torch.randn(3, 2, 3, 3), torch.zeros(3, 18, 1, 1), torch.zeros(2, 2, 3, 3),
            1, 0, 1, 1, 1, False, 2,
        )  # fmt: skip


def test_torchvisions_convolution_is_called_where_there_is_one(
    ops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Compiled:
        @staticmethod
        def deform_conv2d(input: Any, offset: Any, weight: Any, bias: Any, *rest: Any) -> Any:
            calls.append((bias, rest))
            return functional.conv2d(input, weight) + offset.sum() * 0

    monkeypatch.setattr("lightning_hooks.standin.ops.operators.torchvision_ops", lambda: Compiled)
    layer = ops.DeformConv2dPack(2, 2, 3)
    layer(torch.randn(1, 2, 4, 4)).sum().backward()
    assert calls[0] == (None, ((1, 1), (0, 0), (1, 1), None))
    assert layer.weight.grad is not None


def test_the_layer_of_attention_is_built_and_trains(ops: Any) -> None:
    from mmcv.cnn.bricks.transformer import build_attention

    layer = build_attention(
        {"type": "MultiScaleDeformableAttention", "embed_dims": 8, "num_heads": 2, "num_levels": 2}
    )
    shapes = torch.tensor([[3, 4], [2, 2]])
    query, value = torch.randn(5, 1, 8), torch.randn(16, 1, 8)
    out = layer(
        query, value=value, reference_points=torch.rand(1, 5, 2, 2), spatial_shapes=shapes,
        level_start_index=torch.tensor([0, 12]),
    )  # fmt: skip
    assert out.shape == (5, 1, 8)
    out.sum().backward()
    assert all(one.grad is not None for one in layer.parameters())
