"""mmcv's registries of layers and models, and functions to build from configs."""

from __future__ import annotations

from typing import Any

from lightning_hooks.standin.cnn.base_module import Sequential
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
    "build_attention",
    "build_feedforward_network",
    "build_model_from_cfg",
    "build_positional_encoding",
    "build_transformer_layer",
    "build_transformer_layer_sequence",
]

ACTIVATION_LAYERS = Registry("activation layer", scope="mmcv")
CONV_LAYERS = Registry("conv layer", scope="mmcv")
DROPOUT_LAYERS = Registry("drop out layers", scope="mmcv")
NORM_LAYERS = Registry("norm layer", scope="mmcv")
PADDING_LAYERS = Registry("padding layer", scope="mmcv")
PLUGIN_LAYERS = Registry("plugin layer", scope="mmcv")
UPSAMPLE_LAYERS = Registry("upsample layer", scope="mmcv")
ATTENTION = Registry("attention", scope="mmcv")
FEEDFORWARD_NETWORK = Registry("feed-forward Network", scope="mmcv")
POSITIONAL_ENCODING = Registry("position encoding", scope="mmcv")
TRANSFORMER_LAYER = Registry("transformerLayer", scope="mmcv")
TRANSFORMER_LAYER_SEQUENCE = Registry("transformer-layers sequence", scope="mmcv")


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build a model from a config, or a Sequential of models from a list of configs."""
    if isinstance(cfg, list):
        return Sequential(*(build_from_cfg(part, registry, default_args) for part in cfg))
    return build_from_cfg(cfg, registry, default_args)


MODELS = Registry("model", build_func=build_model_from_cfg, scope="mmcv")


def build_positional_encoding(cfg: Any, default_args: Any = None) -> Any:
    """Build a positional encoding from a config."""
    return build_from_cfg(cfg, POSITIONAL_ENCODING, default_args)


def build_attention(cfg: Any, default_args: Any = None) -> Any:
    """Build an attention module from a config."""
    return build_from_cfg(cfg, ATTENTION, default_args)


def build_feedforward_network(cfg: Any, default_args: Any = None) -> Any:
    """Build a feed-forward network from a config."""
    return build_from_cfg(cfg, FEEDFORWARD_NETWORK, default_args)


def build_transformer_layer(cfg: Any, default_args: Any = None) -> Any:
    """Build a transformer layer from a config."""
    return build_from_cfg(cfg, TRANSFORMER_LAYER, default_args)


def build_transformer_layer_sequence(cfg: Any, default_args: Any = None) -> Any:
    """Build a sequence of transformer layers from a config."""
    return build_from_cfg(cfg, TRANSFORMER_LAYER_SEQUENCE, default_args)
