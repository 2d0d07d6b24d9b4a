"""mmcv's decorators that run single methods in half precision, on torch's autocast."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import nn

__all__ = ["auto_fp16", "cast_tensor_type", "force_fp32", "wrap_fp16_model"]


def cast_tensor_type(inputs: Any, src_type: torch.dtype, dst_type: torch.dtype) -> Any:
    """Return inputs with tensors of ``src_type`` cast to ``dst_type``, also nested tensors."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dst_type) if tensor.dtype == src_type else tensor

    return apply_to_collection(inputs, torch.Tensor, cast, allow_frozen=True)


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
    """Decorate a method to run in half precision if ``self.fp16_enabled`` is true.

    Args:
        apply_to: Names of the arguments to cast; all by default.
        out_fp32: Whether the result is cast back.
        supported_types: Classes whose methods may be decorated.
    """
    return _casting(apply_to, out_fp32, supported_types, torch.half)


def force_fp32(
    apply_to: Iterable[str] | None = None,
    out_fp16: bool = False,
    supported_types: tuple[type, ...] = (nn.Module,),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a method to run in full precision if ``self.fp16_enabled`` is true.

    Args:
        apply_to: Names of the arguments to cast; all by default.
        out_fp16: Whether the result is cast back.
        supported_types: Classes whose methods may be decorated.
    """
    return _casting(apply_to, out_fp16, supported_types, torch.float)


def wrap_fp16_model(model: nn.Module) -> None:
    """Switch on a model's decorated methods: set ``fp16_enabled`` of the submodules."""
    module: Any
    for module in model.modules():
        if hasattr(module, "fp16_enabled"):
            module.fp16_enabled = True
