"""mmcv's functions that initialize the weight and the bias of one layer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

__all__ = [
    "bias_init_with_prob",
    "caffe2_xavier_init",
    "constant_init",
    "kaiming_init",
    "normal_init",
    "trunc_normal_",
    "trunc_normal_init",
    "uniform_init",
    "xavier_init",
]


def _fill(module: nn.Module, weight: Any, bias: float) -> None:
    """Fill a layer's weight by a function, and its bias with a number, where it has them."""
    if getattr(module, "weight", None) is not None:
        weight(module.weight)
    if getattr(module, "bias", None) is not None:
        nn.init.constant_(module.bias, bias)  # type: ignore[arg-type]


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    """Fill a layer's weight with a number."""
    _fill(module, partial(nn.init.constant_, val=val), bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    """Draw a layer's weight from a normal distribution."""
    _fill(module, partial(nn.init.normal_, mean=mean, std=std), bias)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    """Draw a layer's weight from a normal distribution cut at ``a`` and ``b``."""
    _fill(module, partial(trunc_normal_, mean=mean, std=std, a=a, b=b), bias)


def trunc_normal_(
    tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> torch.Tensor:
    """Draw from a normal distribution cut at ``a`` and ``b``, by its inverse: one draw each."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: the mean {mean} is more than 2 std from [{a}, {b}], "
            "so the distribution of the values may be wrong",
            stacklevel=2,
        )

    def below(x: float) -> float:
        return (1 + math.erf((x - mean) / std / math.sqrt(2))) / 2

    with torch.no_grad():
        tensor.uniform_(2 * below(a) - 1, 2 * below(b) - 1).erfinv_()
        return tensor.mul_(std * math.sqrt(2)).add_(mean).clamp_(min=a, max=b)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    """Draw a layer's weight from [a, b]."""
    _fill(module, partial(nn.init.uniform_, a=a, b=b), bias)


def xavier_init(
    module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal"
) -> None:
    """Draw a layer's weight by Glorot's rule."""
    kinds = {"uniform": nn.init.xavier_uniform_, "normal": nn.init.xavier_normal_}
    _fill(module, partial(_chosen(kinds, distribution), gain=gain), bias)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: str = "fan_out",
    nonlinearity: str = "relu",
    bias: float = 0,
    distribution: str = "normal",
) -> None:
    """Draw a layer's weight by He's rule."""
    kinds = {"uniform": nn.init.kaiming_uniform_, "normal": nn.init.kaiming_normal_}
    draw = _chosen(kinds, distribution)
    _fill(module, partial(draw, a=a, mode=mode, nonlinearity=nonlinearity), bias)


def caffe2_xavier_init(module: nn.Module, bias: float = 0) -> None:
    """Draw a layer's weight by Caffe2's XavierFill: uniform, by its inputs."""
    kaiming_init(module, 1, "fan_in", "leaky_relu", bias, "uniform")


def bias_init_with_prob(prior_prob: float) -> float:
    """Return the bias with which a sigmoid gives a probability.

    >>> round(bias_init_with_prob(0.01), 4)
    -4.5951
    """
    return -math.log((1 - prior_prob) / prior_prob)


def _chosen(kinds: Mapping[str, Any], distribution: str) -> Any:
    if distribution not in kinds:
        raise AssertionError(f"distribution must be uniform or normal, got {distribution!r}")
    return kinds[distribution]
