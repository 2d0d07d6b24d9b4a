"""mmcv's layers by name: activations, norms, convolutions and the block of the three."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lightning_hooks.standin.cnn.initializers import constant_init, kaiming_init
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg

__all__ = [
    "ACTIVATION_LAYERS",
    "ATTENTION",
    "CONV_LAYERS",
    "DROPOUT_LAYERS",
    "FEEDFORWARD_NETWORK",
    "MODELS",
    "NORM_LAYERS",
    "PADDING_LAYERS",
    "PLUGIN_LAYERS",
    "POSITIONAL_ENCODING",
    "TRANSFORMER_LAYER",
    "TRANSFORMER_LAYER_SEQUENCE",
    "UPSAMPLE_LAYERS",
    "Clamp",
    "ConvModule",
    "DropPath",
    "Dropout",
    "HSigmoid",
    "HSwish",
    "Scale",
    "Swish",
    "build_activation_layer",
    "build_conv_layer",
    "build_dropout",
    "build_from_registry",
    "build_model_from_cfg",
    "build_norm_layer",
    "build_padding_layer",
    "drop_path",
    "is_norm",
]

ACTIVATION_LAYERS = Registry("activation layer", scope="mmcv")
CONV_LAYERS = Registry("conv layer", scope="mmcv")
DROPOUT_LAYERS = Registry("drop out layers", scope="mmcv")
NORM_LAYERS = Registry("norm layer", scope="mmcv")
PADDING_LAYERS = Registry("padding layer", scope="mmcv")
PLUGIN_LAYERS = Registry("plugin layer", scope="mmcv")
UPSAMPLE_LAYERS = Registry("upsample layer", scope="mmcv")
# of the transformer's parts there are none here, but projects register their own
ATTENTION = Registry("attention", scope="mmcv")
FEEDFORWARD_NETWORK = Registry("feed-forward Network", scope="mmcv")
POSITIONAL_ENCODING = Registry("position encoding", scope="mmcv")
TRANSFORMER_LAYER = Registry("transformerLayer", scope="mmcv")
TRANSFORMER_LAYER_SEQUENCE = Registry("transformer-layers sequence", scope="mmcv")


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build a model; of a list of configs, a Sequential of them."""
    if isinstance(cfg, list):
        return nn.Sequential(*(build_from_cfg(one, registry, default_args) for one in cfg))
    return build_from_cfg(cfg, registry, default_args)


MODELS = Registry("model", build_func=build_model_from_cfg, scope="mmcv")

_layer: Any
for _layer in (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.ELU, nn.Sigmoid, nn.Tanh, nn.SiLU,
    nn.GELU,
):  # fmt: skip
    ACTIVATION_LAYERS.register_module(module=_layer)
for _names, _layer in (
    ("Conv1d", nn.Conv1d), ("Conv2d", nn.Conv2d), ("Conv3d", nn.Conv3d), ("Conv", nn.Conv2d),
):  # fmt: skip
    CONV_LAYERS.register_module(_names, module=_layer)
for _names, _layer in (
    ("BN", nn.BatchNorm2d), ("BN1d", nn.BatchNorm1d), ("BN2d", nn.BatchNorm2d),
    ("BN3d", nn.BatchNorm3d), ("SyncBN", nn.SyncBatchNorm), ("GN", nn.GroupNorm),
    ("LN", nn.LayerNorm), ("IN", nn.InstanceNorm2d), ("IN1d", nn.InstanceNorm1d),
    ("IN2d", nn.InstanceNorm2d), ("IN3d", nn.InstanceNorm3d),
):  # fmt: skip
    NORM_LAYERS.register_module(_names, module=_layer)
for _names, _layer in (
    ("zero", nn.ZeroPad2d), ("reflect", nn.ReflectionPad2d), ("replicate", nn.ReplicationPad2d),
):  # fmt: skip
    PADDING_LAYERS.register_module(_names, module=_layer)


def build_activation_layer(cfg: Mapping[str, Any]) -> nn.Module:
    """Build an activation."""
    return build_from_cfg(cfg, ACTIVATION_LAYERS)  # type: ignore[no-any-return]


def build_dropout(cfg: Mapping[str, Any], default_args: Any = None) -> Any:
    """Build a dropout."""
    return build_from_cfg(cfg, DROPOUT_LAYERS, default_args)


def build_conv_layer(cfg: Mapping[str, Any] | None, *args: Any, **kwargs: Any) -> nn.Module:
    """Build a convolution, 2d by default."""
    chosen = {"type": "Conv2d"} if cfg is None else cfg
    return build_from_registry(CONV_LAYERS, chosen, *args, **kwargs)  # type: ignore[no-any-return]


def build_padding_layer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> nn.Module:
    """Build a padding."""
    return build_from_registry(PADDING_LAYERS, cfg, *args, **kwargs)  # type: ignore[no-any-return]


def build_from_registry(registry: Registry, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Build a layer by its config, with positional arguments before."""
    if not isinstance(cfg, Mapping):
        raise TypeError(f"the config of a {registry.name} must be a dict, got {cfg!r}")
    if "type" not in cfg:
        raise KeyError(f'the config of a {registry.name} needs the key "type", got {dict(cfg)}')
    rest = {key: value for key, value in cfg.items() if key != "type"}
    cls = registry.get(cfg["type"])
    if cls is None:
        raise KeyError(f"Unrecognized {registry.name} {cfg['type']}")
    return cls(*args, **kwargs, **rest)


def infer_abbr(class_type: type) -> str:
    """Return the short name of a norm layer's class: bn, gn, ln, in, or norm_layer."""
    if hasattr(class_type, "_abbr_"):
        return str(class_type._abbr_)
    kinds = {"in": _InstanceNorm, "bn": _BatchNorm, "gn": nn.GroupNorm, "ln": nn.LayerNorm}
    for name, base in kinds.items():
        if issubclass(class_type, base):
            return name
    words = {"batch": "bn", "group": "gn", "layer": "ln", "instance": "in"}
    found = [short for word, short in words.items() if word in class_type.__name__.lower()]
    return found[0] if found else "norm_layer"


def build_norm_layer(
    cfg: Mapping[str, Any], num_features: int, postfix: int | str = ""
) -> tuple[str, nn.Module]:
    """Build a norm layer; return it after its name.

    Args:
        cfg: ``type`` and arguments; ``requires_grad=False`` freezes it.
        num_features: How many channels.
        postfix: What stands after the short name: ``bn1``.
    """
    arguments = dict(cfg) if isinstance(cfg, Mapping) else cfg
    frozen = isinstance(cfg, Mapping) and not arguments.pop("requires_grad", True)
    if isinstance(cfg, Mapping):
        arguments.setdefault("eps", 1e-5)
        if arguments.get("type") == "GN":
            if "num_groups" not in arguments:
                raise AssertionError(f"GN needs num_groups, got {dict(cfg)}")
            arguments["num_channels"] = num_features
    args = () if "num_channels" in arguments else (num_features,)
    layer = build_from_registry(NORM_LAYERS, arguments, *args)
    for parameter in layer.parameters() if frozen else ():
        parameter.requires_grad = False
    return f"{infer_abbr(type(layer))}{postfix}", layer


def is_norm(layer: nn.Module, exclude: Any = None) -> bool:
    """Whether a layer normalizes, and is of none of the excluded classes."""
    if exclude and isinstance(layer, exclude):
        return False
    return isinstance(layer, (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm))


# -- layers of its own -----------------------------------------------------------------------------


def drop_path(x: torch.Tensor, drop_prob: float = 0.0, training: bool = False) -> torch.Tensor:
    """Zero whole samples with a probability, and scale the others up."""
    if drop_prob == 0.0 or not training:
        return x
    keep = 1 - drop_prob
    shape = (x.shape[0], *[1] * (x.ndim - 1))
    kept = (keep + torch.rand(shape, dtype=x.dtype, device=x.device)).floor()
    return x.div(keep) * kept


@DROPOUT_LAYERS.register_module()
class DropPath(nn.Module):
    """Stochastic depth: zeroes whole samples of a residual path.

    Args:
        drop_prob: The probability.
    """

    def __init__(self, drop_prob: float = 0.1) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zero some samples in training."""
        return drop_path(x, self.drop_prob, self.training)


@DROPOUT_LAYERS.register_module()
class Dropout(nn.Dropout):
    """``torch.nn.Dropout`` whose argument is called as DropPath's."""

    def __init__(self, drop_prob: float = 0.5, inplace: bool = False) -> None:
        super().__init__(p=drop_prob, inplace=inplace)


@ACTIVATION_LAYERS.register_module(name=["Clip", "Clamp"])
class Clamp(nn.Module):
    """Cuts values off at two ends."""

    def __init__(self, min: float = -1.0, max: float = 1.0) -> None:
        super().__init__()
        self.min, self.max = min, max

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Cut off."""
        return x.clamp(self.min, self.max)


@ACTIVATION_LAYERS.register_module()
class Swish(nn.Module):
    """``x * sigmoid(x)``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Activate."""
        return x * torch.sigmoid(x)


@ACTIVATION_LAYERS.register_module()
class HSigmoid(nn.Module):
    """``clamp((x + bias) / divisor)``, a sigmoid of straight lines."""

    def __init__(
        self,
        bias: float = 3.0,
        divisor: float = 6.0,
        min_value: float = 0.0,
        max_value: float = 1.0,
    ) -> None:
        super().__init__()
        self.bias, self.divisor = bias, divisor
        self.min_value, self.max_value = min_value, max_value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Activate."""
        return ((x + self.bias) / self.divisor).clamp(self.min_value, self.max_value)


class HSwish(nn.Hardswish):
    """``x * relu6(x + 3) / 6``."""


ACTIVATION_LAYERS.register_module(module=HSwish)


class Scale(nn.Module):
    """A number that is learned, as a factor."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x * self.scale


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
