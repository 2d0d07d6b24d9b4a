"""Initialize a model by its config: from a checkpoint, or by initializers of its layers."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from lightning_hooks.standin.cnn.initializers import INITIALIZERS, update_init_info
from lightning_hooks.standin.runner.checkpoint import (
    _load_checkpoint_with_prefix,
    load_checkpoint,
    load_state_dict,
)
from lightning_hooks.standin.utils.logging import get_logger, print_log
from lightning_hooks.standin.utils.registry import build_from_cfg

__all__ = ["PretrainedInit", "initialize"]


@INITIALIZERS.register_module("Pretrained")
class PretrainedInit:
    """Loads a model's weights, or with ``prefix`` a part's, from a checkpoint.

    Args:
        checkpoint: Its path.
        prefix: The part of it to load.
        map_location: As for :func:`torch.load`.
    """

    def __init__(
        self, checkpoint: str, prefix: str | None = None, map_location: Any = None
    ) -> None:
        self.checkpoint = checkpoint
        self.prefix = prefix
        self.map_location = map_location

    def _get_init_info(self) -> str:
        return f"{type(self).__name__}: load from {self.checkpoint}"

    def __call__(self, module: nn.Module) -> None:
        """Initialize a module."""
        logger = get_logger("mmcv")
        if self.prefix is None:
            print_log(f"load model from: {self.checkpoint}", logger=logger)
            load_checkpoint(module, self.checkpoint, self.map_location, logger=logger)
        else:
            print_log(f"load {self.prefix} in model from: {self.checkpoint}", logger=logger)
            args = (self.prefix, self.checkpoint, self.map_location)
            load_state_dict(module, _load_checkpoint_with_prefix(*args), logger=logger)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, self._get_init_info())


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialize a model by a config or a list of them.

    Args:
        module: The model.
        init_cfg: ``dict(type="Kaiming", layer="Conv2d", override=dict(name="head", ...))``: the
            override is for the part of that name, by the same rule unless it has its own.

    Raises:
        TypeError: if a config or an override is neither a dict nor a list.
        ValueError: if an override has no ``name``, or arguments without a ``type``.
        RuntimeError: if there is no part of that name.
    """
    for config in _as_list(init_cfg, "init_cfg"):
        rule = copy.deepcopy(config)
        override = rule.pop("override", None)
        build_from_cfg(rule, INITIALIZERS)(module)
        rule.pop("layer", None)
        for one in [] if override is None else _as_list(override, "override"):
            own = copy.deepcopy(one)
            name = own.pop("name", None)
            if name is None or (own and "type" not in own):
                raise ValueError(f'an override needs "name", and "type" with more, got {one}')
            if not hasattr(module, name):
                raise RuntimeError(f"module did not have attribute {name}, init_cfg is {rule}.")
            initializer = build_from_cfg(own or rule, INITIALIZERS)
            initializer.wholemodule = True
            initializer(getattr(module, name))


def _as_list(configs: Any, name: str) -> list[Any]:
    if not isinstance(configs, (dict, list)):
        raise TypeError(f"{name} must be a dict or a list of dict, got {configs!r}")
    return [configs] if isinstance(configs, dict) else configs
