"""mmcv's half precision of single methods: decorators that cast, over torch's autocast."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = [
    "LossScaler",
    "auto_fp16",
    "cast_tensor_type",
    "force_fp32",
    "patch_forward_method",
    "patch_norm_fp32",
    "wrap_fp16_model",
]


def cast_tensor_type(inputs: Any, src_type: torch.dtype, dst_type: torch.dtype) -> Any:
    """Return inputs with tensors of ``src_type`` cast to ``dst_type``, nested ones included."""
    if isinstance(inputs, torch.Tensor):
        return inputs.to(dst_type) if inputs.dtype == src_type else inputs
    if isinstance(inputs, (nn.Module, str, bytes, np.ndarray)):
        return inputs
    if isinstance(inputs, Mapping):
        found = {k: cast_tensor_type(v, src_type, dst_type) for k, v in inputs.items()}
        return type(inputs)(found)  # type: ignore[call-arg]
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(cast_tensor_type(x, src_type, dst_type) for x in inputs))
    if isinstance(inputs, (list, tuple, set)):
        return type(inputs)(cast_tensor_type(x, src_type, dst_type) for x in inputs)
    return inputs


def _casting(
    apply_to: Iterable[str] | None,
    cast_back: bool,
    supported_types: tuple[type, ...],
    target: torch.dtype,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    to_half = target == torch.half
    source = torch.float if to_half else torch.half
    wanted = None if apply_to is None else set(apply_to)

    def convert(name: str | None, value: Any) -> Any:
        cast_it = wanted is None or name in wanted
        return cast_tensor_type(value, source, target) if cast_it else value

    def decorator(method: Callable[..., Any]) -> Callable[..., Any]:
        names = inspect.getfullargspec(method).args

        @functools.wraps(method)
        def cast(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self, supported_types):
                raise TypeError(
                    f"{method.__name__} is a method of a {type(self).__name__}; the decorator is "
                    f"for methods of {', '.join(t.__name__ for t in supported_types)}"
                )
            if not getattr(self, "fp16_enabled", False):
                return method(self, *args, **kwargs)
            positions = [*names[1:], *[None] * len(args)]
            new_args = [convert(name, x) for name, x in zip(positions, args, strict=False)]
            new_kwargs = {name: convert(name, value) for name, value in kwargs.items()}
            tensors = list(getattr(self, "parameters", list)())
            device = tensors[0].device.type if tensors else "cpu"
            with torch.autocast(device, dtype=torch.float16, enabled=to_half):
                output = method(self, *new_args, **new_kwargs)
            return cast_tensor_type(output, target, source) if cast_back else output

        return cast

    return decorator


def auto_fp16(
    apply_to: Iterable[str] | None = None,
    out_fp32: bool = False,
    supported_types: tuple[type, ...] = (nn.Module,),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a method that runs in half precision where ``self.fp16_enabled`` is true.

    Args:
        apply_to: Names of the arguments that are cast; all by default.
        out_fp32: Whether the result is cast back.
        supported_types: Classes whose methods may be decorated.
    """
    return _casting(apply_to, out_fp32, supported_types, torch.half)


def force_fp32(
    apply_to: Iterable[str] | None = None,
    out_fp16: bool = False,
    supported_types: tuple[type, ...] = (nn.Module,),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a method that runs in full precision where ``self.fp16_enabled`` is true.

    Args:
        apply_to: Names of the arguments that are cast; all by default.
        out_fp16: Whether the result is cast back.
        supported_types: Classes whose methods may be decorated.
    """
    return _casting(apply_to, out_fp16, supported_types, torch.float)


def wrap_fp16_model(model: nn.Module) -> None:
    """Set ``fp16_enabled``, which switches on the decorated methods of a model."""
    module: Any
    for module in model.modules():
        if hasattr(module, "fp16_enabled"):
            module.fp16_enabled = True


def patch_forward_method(
    func: Callable[..., Any],
    src_type: torch.dtype,
    dst_type: torch.dtype,
    convert_output: bool = True,
) -> Callable[..., Any]:
    """Return a function that casts its tensor arguments, and its result back.

    Args:
        func: The function.
        src_type: The type of the tensors to cast.
        dst_type: The type that they are cast to.
        convert_output: Whether the result is cast back.
    """

    def cast(*args: Any, **kwargs: Any) -> Any:
        new_args, new_kwargs = cast_tensor_type((list(args), kwargs), src_type, dst_type)
        output = func(*new_args, **new_kwargs)
        return cast_tensor_type(output, dst_type, src_type) if convert_output else output

    return cast


def patch_norm_fp32(module: nn.Module) -> nn.Module:
    """Convert the norm layers of a model to full precision."""
    for part in module.modules():
        if isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm)):
            part.float()
    return module


class LossScaler:
    """The factor of a loss in half precision: falls on overflow, rises after a while without.

    Args:
        init_scale: The factor at the start.
        mode: ``"dynamic"``, or ``"static"`` for a constant factor.
        scale_factor: Multiplier of each change.
        scale_window: Iterations without overflow before the factor rises.
    """

    _STATE = (
        "cur_scale",
        "cur_iter",
        "mode",
        "last_overflow_iter",
        "scale_factor",
        "scale_window",
    )

    def __init__(
        self,
        init_scale: float = 2**32,
        mode: str = "dynamic",
        scale_factor: float = 2.0,
        scale_window: int = 1000,
    ) -> None:
        if mode not in ("dynamic", "static"):
            raise AssertionError(f"mode can only be dynamic or static, got {mode!r}")
        self.cur_scale = init_scale
        self.cur_iter = 0
        self.mode = mode
        self.last_overflow_iter = -1
        self.scale_factor = scale_factor
        self.scale_window = scale_window

    @property
    def loss_scale(self) -> float:
        """The current factor."""
        return self.cur_scale

    def has_overflow(self, params: Iterable[nn.Parameter]) -> bool:
        """Return whether a gradient is not finite; always False in static mode."""
        if self.mode != "dynamic":
            return False
        return any(p.grad is not None and self._has_inf_or_nan(p.grad.data) for p in params)

    @staticmethod
    def _has_inf_or_nan(x: torch.Tensor) -> bool:
        return not bool(x.isfinite().all())

    def update_scale(self, overflow: bool) -> None:
        """Adapt the factor after an iteration."""
        if self.mode != "dynamic":
            return
        if overflow:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {name: getattr(self, name) for name in self._STATE}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state."""
        for name in self._STATE:
            setattr(self, name, state_dict[name])
