"""mmcv's initializers: functions for a layer, and classes that configs name for many."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from lightning_hooks.standin.runner.checkpoint import (
    _load_checkpoint_with_prefix,
    load_checkpoint,
    load_state_dict,
)
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg

__all__ = [
    "INITIALIZERS",
    "BaseInit",
    "Caffe2XavierInit",
    "ConstantInit",
    "KaimingInit",
    "NormalInit",
    "PretrainedInit",
    "TruncNormalInit",
    "UniformInit",
    "XavierInit",
    "bias_init_with_prob",
    "caffe2_xavier_init",
    "constant_init",
    "initialize",
    "kaiming_init",
    "normal_init",
    "trunc_normal_",
    "trunc_normal_init",
    "uniform_init",
    "xavier_init",
]

INITIALIZERS = Registry("initializer", scope="mmcv")


# -- of one layer ----------------------------------------------------------------------------------


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


# -- of the layers of a model ----------------------------------------------------------------


class BaseInit:
    """Initializes the layers of some classes in a model, or the model as one layer.

    Args:
        bias: The number for biases.
        bias_prob: The probability in its place; see :func:`bias_init_with_prob`.
        layer: The name of a class, or of a base class, or several.
        **arguments: Of the function.
    """

    function: Any
    wholemodule = False

    def __init__(
        self,
        *args: Any,
        bias: float = 0,
        bias_prob: float | None = None,
        layer: str | list[str] | None = None,
        **arguments: Any,
    ) -> None:
        if not (layer is None or isinstance(layer, (str, list))):
            raise TypeError(f"layer must be a str or a list of str, got {layer!r}")
        self.layer = [layer] if isinstance(layer, str) else layer or []
        self.bias = bias if bias_prob is None else bias_init_with_prob(bias_prob)
        self._initialize = partial(type(self).function, *args, bias=self.bias, **arguments)

    def _get_init_info(self) -> str:
        return f"{type(self).__name__}: {vars(self)}"

    def __call__(self, module: nn.Module) -> None:
        """Initialize a module."""
        for part in module.modules():
            names = {type(part).__name__, *(base.__name__ for base in type(part).__bases__)}
            if self.wholemodule or names & set(self.layer):
                self._initialize(part)


def _of_layers(name: str, function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> None:
        *settings, module = args
        function(module, *settings, **kwargs)

    cls = type(
        f"{name}Init",
        (BaseInit,),
        {"function": staticmethod(run), "__module__": __name__, "__doc__": function.__doc__},
    )
    return INITIALIZERS.register_module(name, module=cls)


ConstantInit = _of_layers("Constant", constant_init)
XavierInit = _of_layers("Xavier", xavier_init)
NormalInit = _of_layers("Normal", normal_init)
TruncNormalInit = _of_layers("TruncNormal", trunc_normal_init)
UniformInit = _of_layers("Uniform", uniform_init)
KaimingInit = _of_layers("Kaiming", kaiming_init)
Caffe2XavierInit = _of_layers("Caffe2Xavier", caffe2_xavier_init)


@INITIALIZERS.register_module(name="Pretrained")
class PretrainedInit:
    """Loads a model's weights, or with ``prefix`` a part's, from a checkpoint.

    Args:
        checkpoint: Its path.
        prefix: The part of it to load.
        map_location: As for :func:`torch.load`.
    """

    wholemodule = False

    def __init__(
        self, checkpoint: str, prefix: str | None = None, map_location: Any = None
    ) -> None:
        self.checkpoint = checkpoint
        self.prefix = prefix
        self.map_location = map_location

    def __call__(self, module: nn.Module) -> None:
        """Initialize a module."""
        if self.prefix is None:
            load_checkpoint(module, self.checkpoint, self.map_location)
            return
        args = (self.prefix, self.checkpoint, self.map_location)
        load_state_dict(module, _load_checkpoint_with_prefix(*args))


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialize a model by a config or a list of them.

    Args:
        module: The model.
        init_cfg: ``dict(type="Kaiming", layer="Conv2d", override=dict(name="head", ...))``: the
            override is for the part of that name, by the same rule unless it has its own.
    """
    if not isinstance(init_cfg, (dict, list)):
        raise TypeError(f"init_cfg must be a dict or a list of dict, got {init_cfg!r}")
    for config in [init_cfg] if isinstance(init_cfg, dict) else init_cfg:
        rule = copy.deepcopy(dict(config))
        overrides = rule.pop("override", None)
        build_from_cfg(rule, INITIALIZERS)(module)
        rule.pop("layer", None)
        for override in [overrides] if isinstance(overrides, dict) else overrides or []:
            own = copy.deepcopy(dict(override))
            name = own.pop("name", None)
            if name is None or (own and "type" not in own):
                raise ValueError(f'an override needs "name", and "type" with more, got {override}')
            if not hasattr(module, name):
                raise RuntimeError(f"module did not have attribute {name}, init_cfg is {rule}.")
            initializer = build_from_cfg(own or rule, INITIALIZERS)
            initializer.wholemodule = True
            initializer(getattr(module, name))
