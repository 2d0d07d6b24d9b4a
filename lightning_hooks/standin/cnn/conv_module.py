"""Build convolutions and paddings by name, and ``ConvModule``: convolution, norm, activation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lightning_hooks.standin.cnn.initializers import constant_init, kaiming_init
from lightning_hooks.standin.cnn.layers import build_activation_layer
from lightning_hooks.standin.cnn.norm import build_norm_layer
from lightning_hooks.standin.cnn.registries import (
    CONV_LAYERS,
    PADDING_LAYERS,
    PLUGIN_LAYERS,
    build_from_registry,
)

__all__ = [
    "CONV_LAYERS",
    "PADDING_LAYERS",
    "PLUGIN_LAYERS",
    "ConvModule",
    "build_conv_layer",
    "build_padding_layer",
]

_layer: Any
for _names, _layer in (
    ("Conv1d", nn.Conv1d), ("Conv2d", nn.Conv2d), ("Conv3d", nn.Conv3d), ("Conv", nn.Conv2d),
):  # fmt: skip
    CONV_LAYERS.register_module(_names, module=_layer)
for _names, _layer in (
    ("zero", nn.ZeroPad2d), ("reflect", nn.ReflectionPad2d), ("replicate", nn.ReplicationPad2d),
):  # fmt: skip
    PADDING_LAYERS.register_module(_names, module=_layer)


def build_conv_layer(cfg: Mapping[str, Any] | None, *args: Any, **kwargs: Any) -> nn.Module:
    """Build a convolution, 2d by default."""
    chosen = {"type": "Conv2d"} if cfg is None else cfg
    return build_from_registry(CONV_LAYERS, chosen, *args, **kwargs)  # type: ignore[no-any-return]


def build_padding_layer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> nn.Module:
    """Build a padding."""
    return build_from_registry(PADDING_LAYERS, cfg, *args, **kwargs)  # type: ignore[no-any-return]


_NOT_INPLACE = ("Tanh", "PReLU", "Sigmoid", "HSigmoid", "Swish", "GELU")


@PLUGIN_LAYERS.register_module()
class ConvModule(nn.Module):
    """A convolution with a norm and an activation, in any order.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: As for ``nn.Conv2d``, with ``stride``, ``padding``, ``dilation``, ``groups``.
        stride: See there.
        padding: See there.
        dilation: See there.
        groups: See there.
        bias: Whether the convolution has one; ``"auto"``: if there is no norm.
        conv_cfg: Its config; a 2d convolution by default.
        norm_cfg: The norm's config, None for none.
        act_cfg: The activation's config, None for none; ReLU by default.
        inplace: Whether the activation works in place.
        with_spectral_norm: Whether the weight is divided by its spectral norm.
        padding_mode: ``"zeros"``, ``"circular"``, or a padding layer's name.
        order: The order of the three.
    """

    _abbr_ = "conv_block"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool | str = "auto",
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = None,
        act_cfg: dict[str, Any] | None = {"type": "ReLU"},  # noqa: B006  # read only
        inplace: bool = True,
        with_spectral_norm: bool = False,
        padding_mode: str = "zeros",
        order: tuple[str, ...] = ("conv", "norm", "act"),
    ) -> None:
        super().__init__()
        if sorted(order) != ["act", "conv", "norm"] or not isinstance(order, tuple):
            raise AssertionError(f"order must be a tuple of conv, norm and act, got {order!r}")
        self.conv_cfg, self.norm_cfg, self.act_cfg = conv_cfg, norm_cfg, act_cfg
        self.inplace, self.order = inplace, order
        self.with_norm, self.with_activation = norm_cfg is not None, act_cfg is not None
        self.with_bias = not self.with_norm if bias == "auto" else bool(bias)
        self.with_spectral_norm = with_spectral_norm
        self.with_explicit_padding = padding_mode not in ("zeros", "circular")
        if self.with_explicit_padding:
            self.padding_layer = build_padding_layer({"type": padding_mode}, padding)
        conv: Any = build_conv_layer(
            conv_cfg,
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=0 if self.with_explicit_padding else padding,
            dilation=dilation,
            groups=groups,
            bias=self.with_bias,
        )
        self.conv = nn.utils.spectral_norm(conv) if with_spectral_norm else conv
        self.padding = padding
        for name in ("in_channels", "out_channels", "kernel_size", "stride", "dilation"):
            setattr(self, name, getattr(conv, name))
        self.transposed, self.output_padding = conv.transposed, conv.output_padding
        self.groups = conv.groups
        self.norm_name: str | None = None
        if norm_cfg is not None:
            after = order.index("norm") > order.index("conv")
            self.norm_name, norm = build_norm_layer(
                norm_cfg, out_channels if after else in_channels
            )
            self.add_module(self.norm_name, norm)
            if self.with_bias and isinstance(norm, (_BatchNorm, _InstanceNorm)):
                warnings.warn("Unnecessary conv bias before batch/instance norm", stacklevel=2)
        if act_cfg is not None:
            extra = {} if act_cfg["type"] in _NOT_INPLACE else {"inplace": inplace}
            self.activate = build_activation_layer({**extra, **act_cfg})
        self.init_weights()

    @property
    def norm(self) -> Any:
        """The norm layer, or None."""
        return getattr(self, self.norm_name) if self.norm_name else None

    def init_weights(self) -> None:
        """Initialize by He's rule, the norm with ones; a convolution with its own way keeps it."""
        if not hasattr(self.conv, "init_weights"):
            leaky = self.act_cfg is not None and self.act_cfg["type"] == "LeakyReLU"
            slope = (self.act_cfg or {}).get("negative_slope", 0.01) if leaky else 0
            kaiming_init(self.conv, a=slope, nonlinearity="leaky_relu" if leaky else "relu")
        if self.with_norm:
            constant_init(self.norm, 1, bias=0)

    def forward(self, x: Any, activate: bool = True, norm: bool = True) -> Any:
        """Run the parts in their order."""
        for part in self.order:
            if part == "conv":
                x = self.conv(self.padding_layer(x) if self.with_explicit_padding else x)
            elif part == "norm" and norm and self.with_norm:
                x = self.norm(x)
            elif part == "act" and activate and self.with_activation:
                x = self.activate(x)
        return x
