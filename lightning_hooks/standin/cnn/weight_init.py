"""Initialize models: functions for a single layer, and initializers for configs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from lightning_hooks.standin.runner.checkpoint import (
    _load_checkpoint_with_prefix,
    load_checkpoint,
    load_state_dict,
)
from lightning_hooks.standin.utils.logging import get_logger, print_log
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg
from lightning_hooks.utils.warn import warn

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
    "update_init_info",
    "xavier_init",
]


def _fill(module: nn.Module, weight: Any, bias: float) -> None:
    """Fill the weight of a layer by a function and the bias with a number, if present."""
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
    """Fill a tensor from a normal distribution cut at ``a`` and ``b``, by the inverse of erf."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            f"trunc_normal_: the mean {mean} is more than 2 std from [{a}, {b}], "
            "so the distribution of the values may be wrong",
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
    """Draw a layer's weight by Caffe2's XavierFill: uniform, scaled by the number of inputs."""
    kaiming_init(module, 1, "fan_in", "leaky_relu", bias, "uniform")


def bias_init_with_prob(prior_prob: float) -> float:
    """Return the bias for which the sigmoid is ``prior_prob``.

    >>> round(bias_init_with_prob(0.01), 4)
    -4.5951
    """
    return -math.log((1 - prior_prob) / prior_prob)


def _chosen(kinds: Mapping[str, Any], distribution: str) -> Any:
    if distribution not in kinds:
        raise AssertionError(f"distribution must be uniform or normal, got {distribution!r}")
    return kinds[distribution]


# -- initializers of configs ---------------------------------------------------------------------

INITIALIZERS = Registry("initializer", scope="mmcv")


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Note the initialization of all parameters that changed since the last note.

    Args:
        module: The module. The attribute ``_params_init_info`` has a dict with ``init_info`` and
            ``tmp_mean_value`` for each parameter.
        init_info: The text of the note.

    Raises:
        AssertionError: if the module has no ``_params_init_info``, or a parameter without a note.
    """
    if not hasattr(module, "_params_init_info"):
        raise AssertionError(f"Can not find `_params_init_info` in {module}")
    notes: Any = module._params_init_info
    for name, parameter in module.named_parameters():
        if parameter not in notes:
            raise AssertionError(
                f"init_weights of {type(module).__name__} has added or replaced the parameter "
                f"{name!r}: give parameters other values in place"
            )
        mean = parameter.data.mean()
        if notes[parameter]["tmp_mean_value"] != mean:
            notes[parameter].update(init_info=init_info, tmp_mean_value=mean)


class BaseInit:
    """Initialize the layers of given classes in a model, or the whole model (``wholemodule``).

    Args:
        bias: The value of biases.
        bias_prob: The probability that sets the biases instead; see
            :func:`bias_init_with_prob`.
        layer: The name of a class or base class of layers, or several names.

    Raises:
        TypeError: if an argument has a wrong type.
    """

    _arguments: tuple[str, ...] = ()
    _function: ClassVar[Callable[..., None]]
    """The function for a layer, called with ``_arguments`` and the bias."""

    def __init__(
        self,
        *,
        bias: float = 0,
        bias_prob: float | None = None,
        layer: str | list[str] | None = None,
    ) -> None:
        if not isinstance(bias, (int, float)):
            raise TypeError(f"bias must be a number, got {bias!r}")
        if not (bias_prob is None or isinstance(bias_prob, float)):
            raise TypeError(f"bias_prob must be a float, got {bias_prob!r}")
        if not (layer is None or isinstance(layer, (str, list))):
            raise TypeError(f"layer must be a str or a list of str, got {layer!r}")
        self.wholemodule = False
        self.layer = [layer] if isinstance(layer, str) else layer or []
        self.bias = bias if bias_prob is None else bias_init_with_prob(bias_prob)

    def _get_init_info(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)}" for name in (*self._arguments, "bias"))
        return f"{type(self).__name__}: {values}"

    def __call__(self, module: nn.Module) -> None:
        """Initialize a module."""
        values = {name: getattr(self, name) for name in (*self._arguments, "bias")}

        def initialize_layer(layer: nn.Module) -> None:
            names = {type(layer).__name__, *(base.__name__ for base in type(layer).__bases__)}
            if self.wholemodule or names & set(self.layer):
                type(self)._function(layer, **values)

        module.apply(initialize_layer)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, self._get_init_info())


@INITIALIZERS.register_module("Constant")
class ConstantInit(BaseInit):
    """Fill weights with a number."""

    _arguments = ("val",)
    _function = constant_init

    def __init__(self, val: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.val = val


@INITIALIZERS.register_module("Xavier")
class XavierInit(BaseInit):
    """Draw weights by Glorot's rule."""

    _arguments = ("gain", "distribution")
    _function = xavier_init

    def __init__(self, gain: float = 1, distribution: str = "normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gain, self.distribution = gain, distribution


@INITIALIZERS.register_module("Normal")
class NormalInit(BaseInit):
    """Draw weights from a normal distribution."""

    _arguments = ("mean", "std")
    _function = normal_init

    def __init__(self, mean: float = 0, std: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean, self.std = mean, std


@INITIALIZERS.register_module("TruncNormal")
class TruncNormalInit(BaseInit):
    """Draw weights from a normal distribution cut at ``a`` and ``b``."""

    _arguments = ("a", "b", "mean", "std")
    _function = trunc_normal_init

    def __init__(
        self, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.mean, self.std, self.a, self.b = mean, std, a, b


@INITIALIZERS.register_module("Uniform")
class UniformInit(BaseInit):
    """Draw weights from [a, b]."""

    _arguments = ("a", "b")
    _function = uniform_init

    def __init__(self, a: float = 0.0, b: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.a, self.b = a, b


@INITIALIZERS.register_module("Kaiming")
class KaimingInit(BaseInit):
    """Draw weights by He's rule."""

    _arguments = ("a", "mode", "nonlinearity", "distribution")
    _function = kaiming_init

    def __init__(
        self,
        a: float = 0,
        mode: str = "fan_out",
        nonlinearity: str = "relu",
        distribution: str = "normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.a, self.mode = a, mode
        self.nonlinearity, self.distribution = nonlinearity, distribution


@INITIALIZERS.register_module("Caffe2Xavier")
class Caffe2XavierInit(KaimingInit):
    """Draw weights by Caffe2's XavierFill: uniform, scaled by the number of a layer's inputs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(1, "fan_in", "leaky_relu", "uniform", **kwargs)


@INITIALIZERS.register_module("Pretrained")
class PretrainedInit:
    """Load a model's weights from a checkpoint.

    Args:
        checkpoint: The path of the checkpoint.
        prefix: The part of the checkpoint's model to load, such as ``"backbone."``.
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
    """Initialize a model by a config or a list of configs.

    Args:
        module: The model.
        init_cfg: ``dict(type="Kaiming", layer="Conv2d", override=dict(name="head", ...))``. The
            override initializes the submodule ``head``, by the same rule if ``type`` is missing.

    Raises:
        TypeError: if a config or an override is neither a dict nor a list.
        ValueError: if an override has no ``name``, or arguments without a ``type``.
        RuntimeError: if the model lacks the submodule.
    """
    for init in _as_list(init_cfg, "init_cfg"):
        rule = copy.deepcopy(init)
        override = rule.pop("override", None)
        build_from_cfg(rule, INITIALIZERS)(module)
        rule.pop("layer", None)
        for config in [] if override is None else _as_list(override, "override"):
            own = copy.deepcopy(config)
            name = own.pop("name", None)
            if name is None or (own and "type" not in own):
                raise ValueError(f'an override needs "name", and "type" with more, got {config}')
            if not hasattr(module, name):
                raise RuntimeError(f"module did not have attribute {name}, init_cfg is {rule}.")
            initializer = build_from_cfg(own or rule, INITIALIZERS)
            initializer.wholemodule = True
            initializer(getattr(module, name))


def _as_list(configs: Any, name: str) -> list[Any]:
    if not isinstance(configs, (dict, list)):
        raise TypeError(f"{name} must be a dict or a list of dict, got {configs!r}")
    return [configs] if isinstance(configs, dict) else configs
