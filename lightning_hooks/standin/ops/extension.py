"""``mmcv._ext``: the compiled operators of an installed mmcv 2.x, or formulas in torch."""

from __future__ import annotations

import functools
import importlib
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from lightning_hooks.standin.ops import operators
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["OFFERED", "Extension", "get_onnxruntime_op_path", "load_ext", "refuse", "upfirdn2d"]


def get_compiler_version() -> str:
    """Return the compiler of torch: the operators of the stand-in are not compiled."""
    compiler = re.search(r"GCC [\d.]+|MSVC \d+|clang [\d.]+", torch.__config__.show())
    return compiler[0] if compiler else "not available"


def get_compiling_cuda_version() -> str:
    """Return the version of CUDA for which torch was compiled."""
    return torch.version.cuda or "not available"


def get_onnxruntime_op_path() -> str:
    """Return "": the stand-in has no operators for ONNX Runtime."""
    return ""


OFFERED: dict[str, Callable[..., Any]] = {
    "get_compiler_version": get_compiler_version,
    "get_compiling_cuda_version": get_compiling_cuda_version,
    **{name: getattr(operators, name) for name in operators.__all__},
}
"""The operators of the stand-in, by their names in mmcv's extension."""


class Extension(types.ModuleType):
    """The module ``mmcv._ext`` with the operators of the stand-in; others raise when called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return OFFERED.get(name) or functools.partial(refuse, name)


def load_ext(name: str, funcs: Sequence[str]) -> types.ModuleType:
    """Return the compiled operators of an installed mmcv 2.x, or the operators of the stand-in.

    Calls of operators missing in the stand-in raise NotImplementedError.

    Args:
        name: The name of the compiled module in mmcv: ``"_ext"``.
        funcs: The required functions.

    Raises:
        AssertionError: if the compiled module lacks a function.
    """
    try:
        extension = importlib.import_module(f"mmcv.{name}")
    except ImportError as error:  # compiled for another torch
        _warn(f"mmcv's compiled operators are not used: {error}")
        return Extension(name)
    missing = [func for func in funcs if not hasattr(extension, func)]
    if missing:
        raise AssertionError(f"{', '.join(missing)} miss in module {name}")
    return extension


@functools.cache
def _warn(message: str) -> None:
    default_logger(0).warning(message)


def refuse(name: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error for a call of a missing operator."""
    raise NotImplementedError(
        f"the stand-in of lightning_hooks does not have mmcv's operator {name!r}. Install an mmcv "
        "2.x with compiled operators (`pip install onedl-mmcv`, its maintained fork), and the "
        "stand-in uses them"
    )


def upfirdn2d(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse the operator: the function of mmcv 2.x has other arguments.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "the stand-in of lightning_hooks does not have mmcv 1.x's operator 'upfirdn2d', and mmcv "
        "2.x's has other arguments: copy mmcv/ops/upfirdn2d.py of mmcv 1.7.2 into your project"
    )
