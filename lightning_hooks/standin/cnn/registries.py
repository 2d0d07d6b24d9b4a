"""Register mmcv's layers and models by name, and build them from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

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
    "build_from_registry",
    "build_model_from_cfg",
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
