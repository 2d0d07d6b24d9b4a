"""mmcv's initializers: classes that configs name, for the layers of a model."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_hooks.standin.cnn.weight_init import (
    bias_init_with_prob,
    constant_init,
    kaiming_init,
    normal_init,
    trunc_normal_init,
    uniform_init,
    xavier_init,
)
from lightning_hooks.standin.utils.registry import Registry

__all__ = [
    "INITIALIZERS",
    "BaseInit",
    "Caffe2XavierInit",
    "ConstantInit",
    "KaimingInit",
    "NormalInit",
    "TruncNormalInit",
    "UniformInit",
    "XavierInit",
    "update_init_info",
]

INITIALIZERS = Registry("initializer", scope="mmcv")


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Note how the parameters that have changed since the last note were initialized.

    Args:
        module: The module, whose ``_params_init_info`` has for each parameter a dict with
            ``init_info`` and ``tmp_mean_value``.
        init_info: The text.

    Raises:
        AssertionError: if there are no notes, or none of a parameter.
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
    """Initializes the layers of some classes in a model, or all of the model (``wholemodule``).

    Args:
        bias: The number for biases.
        bias_prob: The probability in its place; see
            :func:`~lightning_hooks.standin.cnn.weight_init.bias_init_with_prob`.
        layer: The name of a class, or of a base class, or several.

    Raises:
        TypeError: if an argument is of another type.
    """

    _shown: tuple[str, ...] = ()
    """The arguments in the notes about a model's initialization."""

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
        values = ", ".join(f"{name}={getattr(self, name)}" for name in (*self._shown, "bias"))
        return f"{type(self).__name__}: {values}"

    def _initialize(self, layer: nn.Module) -> None:
        raise NotImplementedError

    def __call__(self, module: nn.Module) -> None:
        """Initialize a module."""

        def initialize_one(part: nn.Module) -> None:
            names = {type(part).__name__, *(base.__name__ for base in type(part).__bases__)}
            if self.wholemodule or names & set(self.layer):
                self._initialize(part)

        module.apply(initialize_one)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, self._get_init_info())


@INITIALIZERS.register_module("Constant")
class ConstantInit(BaseInit):
    """Fills weights with a number."""

    _shown = ("val",)

    def __init__(self, val: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.val = val

    def _initialize(self, layer: nn.Module) -> None:
        constant_init(layer, self.val, self.bias)


@INITIALIZERS.register_module("Xavier")
class XavierInit(BaseInit):
    """Draws weights by Glorot's rule."""

    _shown = ("gain", "distribution")

    def __init__(self, gain: float = 1, distribution: str = "normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gain, self.distribution = gain, distribution

    def _initialize(self, layer: nn.Module) -> None:
        xavier_init(layer, self.gain, self.bias, self.distribution)


@INITIALIZERS.register_module("Normal")
class NormalInit(BaseInit):
    """Draws weights from a normal distribution."""

    _shown = ("mean", "std")

    def __init__(self, mean: float = 0, std: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean, self.std = mean, std

    def _initialize(self, layer: nn.Module) -> None:
        normal_init(layer, self.mean, self.std, self.bias)


@INITIALIZERS.register_module("TruncNormal")
class TruncNormalInit(BaseInit):
    """Draws weights from a normal distribution cut at ``a`` and ``b``."""

    _shown = ("a", "b", "mean", "std")

    def __init__(
        self, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.mean, self.std, self.a, self.b = mean, std, a, b

    def _initialize(self, layer: nn.Module) -> None:
        trunc_normal_init(layer, self.mean, self.std, self.a, self.b, self.bias)


@INITIALIZERS.register_module("Uniform")
class UniformInit(BaseInit):
    """Draws weights from [a, b]."""

    _shown = ("a", "b")

    def __init__(self, a: float = 0.0, b: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.a, self.b = a, b

    def _initialize(self, layer: nn.Module) -> None:
        uniform_init(layer, self.a, self.b, self.bias)


@INITIALIZERS.register_module("Kaiming")
class KaimingInit(BaseInit):
    """Draws weights by He's rule."""

    _shown = ("a", "mode", "nonlinearity", "distribution")

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

    def _initialize(self, layer: nn.Module) -> None:
        kaiming_init(layer, self.a, self.mode, self.nonlinearity, self.bias, self.distribution)


@INITIALIZERS.register_module("Caffe2Xavier")
class Caffe2XavierInit(KaimingInit):
    """Draws weights by Caffe2's XavierFill: uniform, by a layer's inputs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(1, "fan_in", "leaky_relu", "uniform", **kwargs)
