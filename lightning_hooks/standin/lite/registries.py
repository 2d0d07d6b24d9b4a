"""Give each file of mmcv-lite the registries that it had in mmcv 1.x."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lightning_hooks.standin.cnn import registries
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg

__all__ = ["FileModels", "models_of"]

_FILES = {
    "ACTIVATION_LAYERS": "activation hsigmoid hswish swish",
    "ATTENTION": "multi_scale_deform_attn",
    "CONV_LAYERS": "conv conv2d_adaptive_padding conv_ws wrappers deform_conv "
    "modulated_deform_conv saconv sparse_conv",
    "DROPOUT_LAYERS": "drop",
    "NORM_LAYERS": "norm sync_bn",
    "PADDING_LAYERS": "padding",
    "PLUGIN_LAYERS": "context_block conv_module generalized_attention non_local plugin "
    "cc_attention",
    "TRANSFORMER_LAYER": "transformer",
    "UPSAMPLE_LAYERS": "upsample carafe",
}
_CLASSES = {
    "FFN": registries.FEEDFORWARD_NETWORK,
    "MultiheadAttention": registries.ATTENTION,
    "TransformerLayerSequence": registries.TRANSFORMER_LAYER_SEQUENCE,
}
"""Classes that are not in the registry of their file."""


class FileModels:
    """MMEngine's ``MODELS`` in one file: the registry of mmcv 1.x that the file had.

    Args:
        registry: That registry.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def register_module(
        self, name: str | None = None, force: bool = False, module: type | None = None
    ) -> Any:
        """Register a class, or return a decorator for it.

        As the files do this once, ``force`` is of no consequence: it only lets a file be loaded
        again whose first import failed half-way.
        """

        def register(cls: type) -> type:
            home = _CLASSES.get(cls.__name__, self.registry)
            home.register_module(name, force=True, module=cls)
            if name in ("deconv", "deconv3d"):  # of both kinds in 1.x
                registries.UPSAMPLE_LAYERS.register_module(name, force=True, module=cls)
            return cls

        return register if module is None else register(module)

    def build(self, cfg: Any, default_args: Mapping[str, Any] | None = None) -> Any:
        """Build an object by its config."""
        return build_from_cfg(cfg, self.registry, default_args)

    @contextlib.contextmanager
    def switch_scope_and_registry(self, scope: None) -> Iterator[FileModels]:
        """Stay with this registry."""
        yield self

    def get(self, name: str) -> Callable[..., Any]:
        """Return a registered class.

        Raises:
            KeyError: if there is none, with the words of mmcv 1.x.
        """
        found: Callable[..., Any] | None = self.registry.get(name)
        if found is None:
            kind = self.registry.name.removesuffix(" layer").replace("conv", "layer")
            raise KeyError(f"Unrecognized {kind} type {name}")
        return found


def models_of(module: str) -> FileModels | None:
    """Return ``MODELS`` for a module of mmcv; None for those without a registry."""
    package, _, file = module.rpartition(".")
    for registry, files in _FILES.items():
        if package in ("mmcv.cnn.bricks", "mmcv.ops") and file in files.split():
            return FileModels(getattr(registries, registry))
    return None
