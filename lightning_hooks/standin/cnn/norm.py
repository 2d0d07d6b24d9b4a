"""Build normalization layers by name, and name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lightning_hooks.standin.cnn.registries import NORM_LAYERS, build_from_registry

__all__ = [
    "NORM_LAYERS",
    "build_norm_layer",
    "infer_abbr",
    "is_norm",
]

_layer: Any
for _names, _layer in (
    ("BN", nn.BatchNorm2d), ("BN1d", nn.BatchNorm1d), ("BN2d", nn.BatchNorm2d),
    ("BN3d", nn.BatchNorm3d), ("SyncBN", nn.SyncBatchNorm), ("GN", nn.GroupNorm),
    ("LN", nn.LayerNorm), ("IN", nn.InstanceNorm2d), ("IN1d", nn.InstanceNorm1d),
    ("IN2d", nn.InstanceNorm2d), ("IN3d", nn.InstanceNorm3d),
):  # fmt: skip
    NORM_LAYERS.register_module(_names, module=_layer)


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
