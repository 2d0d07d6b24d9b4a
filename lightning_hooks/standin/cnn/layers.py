"""Build activations and dropouts by name, torch's and mmcv's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lightning_hooks.standin.cnn.registries import ACTIVATION_LAYERS, DROPOUT_LAYERS
from lightning_hooks.standin.utils.registry import build_from_cfg

__all__ = [
    "ACTIVATION_LAYERS",
    "DROPOUT_LAYERS",
    "Clamp",
    "DropPath",
    "Dropout",
    "HSigmoid",
    "HSwish",
    "Scale",
    "Swish",
    "build_activation_layer",
    "build_dropout",
    "drop_path",
]

_layer: Any
for _layer in (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.ELU, nn.Sigmoid, nn.Tanh, nn.SiLU,
    nn.GELU,
):  # fmt: skip
    ACTIVATION_LAYERS.register_module(module=_layer)


def build_activation_layer(cfg: Mapping[str, Any]) -> nn.Module:
    """Build an activation."""
    return build_from_cfg(cfg, ACTIVATION_LAYERS)  # type: ignore[no-any-return]


def build_dropout(cfg: Mapping[str, Any], default_args: Any = None) -> Any:
    """Build a dropout."""
    return build_from_cfg(cfg, DROPOUT_LAYERS, default_args)


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
