"""Layers by name compute what mmcv's do, by the same keys; run in the oracle environment."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from oracle import mmcv_runner  # noqa: F401  # makes mmcv importable
from torch import nn

from lightning_hooks.standin.cnn import bricks

BN = {"type": "BN"}
BUILDS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("build_upsample_layer", ({"type": "nearest", "scale_factor": 2},), {}),
    ("build_upsample_layer", ({"type": "bilinear", "scale_factor": 2, "align_corners": True},), {}),
    ("build_upsample_layer", ({"type": "deconv"}, 4, 2, 3), {"stride": 2}),
    ("build_upsample_layer", ({"type": "pixel_shuffle", "scale_factor": 2, "upsample_kernel": 3},),
     {"in_channels": 4, "out_channels": 2}),
    ("build_plugin_layer", ({"type": "ConvModule", "kernel_size": 1},),
     {"postfix": 3, "in_channels": 4, "out_channels": 2}),
    ("DepthwiseSeparableConvModule", (4, 6, 3), {"padding": 1, "norm_cfg": BN, "pw_act_cfg": None}),
    ("DepthwiseSeparableConvModule", (4, 6, 3), {"dw_norm_cfg": BN, "bias": False}),
    ("ConvWS2d", (4, 6, 3, 2, 1), {}),
    ("ConvModule", (4, 6, 3), {"conv_cfg": {"type": "ConvWS"}, "norm_cfg": BN}),
    ("build_conv_layer", ({"type": "Conv2dAdaptivePadding"}, 4, 6, (3, 5), 2, 0, (2, 1)), {}),
]  # fmt: skip


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build[0])
def test_equal(build: Any) -> None:
    name, args, kwargs = build
    import mmcv.cnn

    results = []
    for source in (bricks, mmcv.cnn):
        torch.manual_seed(0)
        made = getattr(source, name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        results.append(made if isinstance(made, tuple) else ("", made))
    (ours_name, ours), (theirs_name, theirs) = results
    assert ours_name == theirs_name
    assert [*ours.state_dict()] == [*theirs.state_dict()]
    x = torch.rand(2, 4, 7, 9)
    assert torch.equal(ours(x), theirs(x))


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 1, bias=False),
        nn.BatchNorm2d(4)), nn.BatchNorm2d(4))  # fmt: skip
    model(torch.rand(4, 3, 8, 8))
    return model.eval()


def test_fused_and_without_sync() -> None:
    import mmcv.cnn

    x = torch.rand(2, 3, 8, 8)
    ours, theirs = bricks.fuse_conv_bn(make_model()), mmcv.cnn.fuse_conv_bn(make_model())
    assert str(ours) == str(theirs)
    assert torch.equal(ours(x), theirs(x))
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(make_model())
    plain = bricks.revert_sync_batchnorm(synced)
    assert torch.equal(plain(x), make_model()(x))
    assert not any(isinstance(m, nn.SyncBatchNorm) for m in plain.modules())
