"""mmcv's further layers by name: upsampling, plugins, convolutions of other kinds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lightning_hooks.standin.cnn.conv_module import (
    CONV_LAYERS,
    PLUGIN_LAYERS,
    ConvModule,
    build_conv_layer,
)
from lightning_hooks.standin.cnn.initializers import xavier_init
from lightning_hooks.standin.cnn.registries import UPSAMPLE_LAYERS, build_from_registry

__all__ = [
    "CONV_LAYERS",
    "PLUGIN_LAYERS",
    "UPSAMPLE_LAYERS",
    "Conv2dAdaptivePadding",
    "ConvModule",
    "ConvWS2d",
    "DepthwiseSeparableConvModule",
    "PixelShufflePack",
    "build_conv_layer",
    "build_plugin_layer",
    "build_upsample_layer",
    "conv_ws_2d",
    "fuse_conv_bn",
    "revert_sync_batchnorm",
]

_layer: Any
for _name, _layer in (
    ("nearest", nn.Upsample), ("bilinear", nn.Upsample), ("deconv", nn.ConvTranspose2d),
    ("deconv3d", nn.ConvTranspose3d),
):  # fmt: skip
    UPSAMPLE_LAYERS.register_module(_name, module=_layer)


def build_upsample_layer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> nn.Module:
    """Build an upsampling: ``nearest``, ``bilinear``, ``deconv``, ``pixel_shuffle``."""
    if isinstance(cfg, Mapping) and cfg.get("type") in ("nearest", "bilinear"):
        kwargs["mode"] = cfg["type"]
    return build_from_registry(UPSAMPLE_LAYERS, cfg, *args, **kwargs)  # type: ignore[no-any-return]


def build_plugin_layer(
    cfg: Mapping[str, Any], postfix: int | str = "", **kwargs: Any
) -> tuple[str, nn.Module]:
    """Build a plugin; return it after its name: its class's ``_abbr_`` or name, and ``postfix``."""
    layer = build_from_registry(PLUGIN_LAYERS, cfg, **kwargs)
    words = re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(layer).__name__)
    return f"{getattr(type(layer), '_abbr_', words.lower())}{postfix}", layer


@UPSAMPLE_LAYERS.register_module(name="pixel_shuffle")
class PixelShufflePack(nn.Module):
    """A convolution whose channels become pixels.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        scale_factor: By how much both sides grow.
        upsample_kernel: The size of the kernel.
    """

    def __init__(
        self, in_channels: int, out_channels: int, scale_factor: int, upsample_kernel: int
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.scale_factor, self.upsample_kernel = scale_factor, upsample_kernel
        wide, margin = out_channels * scale_factor**2, (upsample_kernel - 1) // 2
        self.upsample_conv = nn.Conv2d(in_channels, wide, upsample_kernel, padding=margin)
        self.init_weights()

    def init_weights(self) -> None:
        """Initialize by Glorot's rule."""
        xavier_init(self.upsample_conv, distribution="uniform")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Enlarge."""
        return functional.pixel_shuffle(self.upsample_conv(x), self.scale_factor)


class DepthwiseSeparableConvModule(nn.Module):
    """Two ConvModules: one of each channel by itself, one of each pixel by itself.

    Args:
        in_channels: As for ConvModule, with ``out_channels``, ``kernel_size``, ``stride``,
            ``padding``, ``dilation``, ``norm_cfg``, ``act_cfg``.
        out_channels: See there.
        kernel_size: See there.
        stride: See there.
        padding: See there.
        dilation: See there.
        norm_cfg: See there.
        act_cfg: See there.
        dw_norm_cfg: Of the first of the two, with ``dw_act_cfg``; as above by default.
        dw_act_cfg: See there.
        pw_norm_cfg: Of the second, with ``pw_act_cfg``; as above by default.
        pw_act_cfg: See there.
        **kwargs: Of both.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        norm_cfg: dict[str, Any] | None = None,
        act_cfg: dict[str, Any] | None = {"type": "ReLU"},  # noqa: B006  # read only
        dw_norm_cfg: Any = "default",
        dw_act_cfg: Any = "default",
        pw_norm_cfg: Any = "default",
        pw_act_cfg: Any = "default",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if "groups" in kwargs:
            raise AssertionError("groups should not be specified: each channel is one")

        def chosen(own: Any, common: Any) -> Any:
            return common if own == "default" else own

        self.depthwise_conv = ConvModule(
            in_channels,
            in_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=in_channels,
            norm_cfg=chosen(dw_norm_cfg, norm_cfg),
            act_cfg=chosen(dw_act_cfg, act_cfg),
            **kwargs,
        )
        self.pointwise_conv = ConvModule(
            in_channels,
            out_channels,
            1,
            norm_cfg=chosen(pw_norm_cfg, norm_cfg),
            act_cfg=chosen(pw_act_cfg, act_cfg),
            **kwargs,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run both."""
        return self.pointwise_conv(self.depthwise_conv(x))  # type: ignore[no-any-return]


def conv_ws_2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """A convolution by a standardized weight: of each filter, mean 0 and deviation 1."""
    filters = weight.flatten(1)
    mean, std = (
        moment(dim=1, keepdim=True)[..., None, None] for moment in (filters.mean, filters.std)
    )
    standard = (weight - mean) / (std + eps)
    return functional.conv2d(input, standard, bias, stride, padding, dilation, groups)


@CONV_LAYERS.register_module("ConvWS")
class ConvWS2d(nn.Conv2d):
    """``torch.nn.Conv2d`` with a standardized weight; see :func:`conv_ws_2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        eps: float = 1e-5,
    ) -> None:
        args = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        super().__init__(*args)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve."""
        settings = (self.stride, self.padding, self.dilation, self.groups, self.eps)
        return conv_ws_2d(x, self.weight, self.bias, *settings)


@CONV_LAYERS.register_module()
class Conv2dAdaptivePadding(nn.Conv2d):
    """``torch.nn.Conv2d`` whose output is the input's size over the stride, rounded up."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, 0, dilation, groups, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pad by what is needed, and convolve."""
        border: list[int] = []
        sides = zip(x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True)
        for size, kernel, stride, dilation in sides:
            reach = (math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1
            missing = max(reach - size, 0)
            border = [missing // 2, missing - missing // 2, *border]
        return super().forward(functional.pad(x, border))


# -- of whole models -----------------------------------------------------------------------------


def fuse_conv_bn(module: nn.Module) -> nn.Module:
    """Put each BatchNorm that follows a convolution into its weights, for inference, in place."""
    before: tuple[str, nn.Conv2d] | None = None
    for name, child in [*module.named_children()]:
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            if before is not None:
                module._modules[before[0]] = _fused(before[1], child)
                module._modules[name] = nn.Identity()
                before = None
        elif isinstance(child, nn.Conv2d):
            before = name, child
        else:
            fuse_conv_bn(child)
    return module


def _fused(conv: nn.Conv2d, norm: Any) -> nn.Conv2d:
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    bias = torch.zeros_like(norm.running_mean) if conv.bias is None else conv.bias
    conv.weight = nn.Parameter(conv.weight * factor[:, None, None, None])
    conv.bias = nn.Parameter((bias - norm.running_mean) * factor + norm.bias)
    return conv


class _AnyBatchNorm(nn.modules.batchnorm._BatchNorm):
    """A BatchNorm of inputs of any number of dimensions."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """All are right."""


def revert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Return a model whose SyncBatchNorms are ordinary BatchNorms of the same values."""
    result = module
    if isinstance(module, nn.SyncBatchNorm):
        args = (module.num_features, module.eps, module.momentum, module.affine)
        result = _AnyBatchNorm(*args, module.track_running_stats).train(module.training)
        result._parameters.update(module._parameters)
        result._buffers.update(module._buffers)
        if hasattr(module, "qconfig"):  # of quantized models
            result.qconfig = module.qconfig
    for name, child in module.named_children():
        result.add_module(name, revert_sync_batchnorm(child))
    return result
