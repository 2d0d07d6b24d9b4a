"""The rules of mmcv's ``paramwise_cfg``, for one parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn import GroupNorm, LayerNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = ["options_of"]


def options_of(
    owner: nn.Module,
    name: str,
    full_name: str,
    lr: Any,
    weight_decay: Any,
    rules: Mapping[str, Any],
    otherwise: float = 1.0,
    *,
    is_offset: bool = False,
    in_deformable: bool = False,
) -> dict[str, float]:
    """Return the rate and decay of a parameter by the rules of mmcv's ``paramwise_cfg``.

    Args:
        owner: The module with the parameter.
        name: The parameter's name in the module.
        full_name: The parameter's name in the model; a parameter of the model itself begins with a
            dot.
        lr: The rate to multiply.
        weight_decay: The decay to multiply; None for no decay.
        rules: The ``paramwise_cfg``.
        otherwise: The multiplier of the decay without a rule.
        is_offset: Whether the parameter makes the offsets of a deformable convolution.
        in_deformable: Whether the parameter is in a deformable convolution; its biases have no
            multiplier.
    """
    custom = rules.get("custom_keys", {})
    for key in sorted(sorted(custom), key=len, reverse=True):
        if key in full_name:
            options = {"lr": lr * custom[key].get("lr_mult", 1.0)}
            if weight_decay is not None:
                options["weight_decay"] = weight_decay * custom[key].get("decay_mult", 1.0)
            return options
    is_norm = isinstance(owner, (_BatchNorm, _InstanceNorm, GroupNorm, LayerNorm))
    is_bias = name == "bias" and not in_deformable
    options = {}
    if is_bias and not is_norm:
        options["lr"] = lr * rules.get("bias_lr_mult", 1.0)
    if is_offset:
        options["lr"] = lr * rules.get("dcn_offset_lr_mult", 1.0)
    if weight_decay is None:
        return options
    is_depthwise = isinstance(owner, nn.Conv2d) and owner.in_channels == owner.groups
    kind = "norm" if is_norm else "dwconv" if is_depthwise else "bias" if is_bias else ""
    if kind or otherwise != 1:
        options["weight_decay"] = weight_decay * rules.get(f"{kind}_decay_mult", otherwise)
    return options
