"""``mmcv._ext``: the operators of an installed mmcv 2.x, or those in plain torch."""

from __future__ import annotations

import functools
import importlib
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from lightning_hooks.standin.ops import (
    attention,
    boxes,
    deform_conv,
    focal_loss,
    nms,
    roi_align,
    roi_pool,
    stylegan,
    sync_bn,
)
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["OFFERED", "get_onnxruntime_op_path", "load_ext", "refuse"]


def get_compiler_version() -> str:
    """Return the compiler of torch itself, as there are no compiled operators."""
    found = re.search(r"GCC [\d.]+|MSVC \d+|clang [\d.]+", torch.__config__.show())
    return found[0] if found else "not available"


def get_compiling_cuda_version() -> str:
    """Return the version of CUDA that torch was compiled with."""
    return torch.version.cuda or "not available"


def get_onnxruntime_op_path() -> str:
    """Return "": there is no library of operators for ONNX Runtime."""
    return ""


OFFERED: dict[str, Callable[..., Any]] = {
    "get_compiler_version": get_compiler_version,
    "get_compiling_cuda_version": get_compiling_cuda_version,
    **{
        name: getattr(module, name)
        for module in (
            attention, boxes, deform_conv, focal_loss, nms, roi_align, roi_pool, stylegan,
            sync_bn,
        )
        for name in module.__all__
        if name != "upfirdn2d"  # of mmcv 2.x it has other arguments
    },
}  # fmt: skip
"""The operators in plain torch, by their names in mmcv's extension."""


def load_ext(name: str, funcs: Sequence[str]) -> Any:
    """Return the compiled operators of an installed mmcv 2.x, or without one those in plain torch.

    Operators that are in neither raise an error when called.

    Args:
        name: The name of the compiled module in mmcv: ``"_ext"``.
        funcs: The functions that it must have.

    Raises:
        AssertionError: if the compiled module lacks one.
    """
    compiled = _compiled(f"mmcv.{name}")
    if compiled is None:
        plain = {one: OFFERED.get(one) or functools.partial(refuse, one) for one in funcs}
        return types.SimpleNamespace(**plain)
    missing = [one for one in funcs if not hasattr(compiled, one)]
    if missing:
        raise AssertionError(f"{', '.join(missing)} miss in module {name}")
    return compiled


def _compiled(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
    except ImportError as error:  # compiled for another torch
        _warn(f"mmcv's compiled operators are not used: {error}")
        return None


@functools.cache
def _warn(message: str) -> None:
    default_logger(0).warning(message)


def refuse(name: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: an operator is called that is in neither."""
    raise NotImplementedError(
        f"mmcv's operator {name!r} needs a compiler, and the stand-in of lightning_hooks does not "
        "have it in plain torch. Install an mmcv 2.x with its operators (`pip install onedl-mmcv`, "
        "its maintained fork), and the stand-in uses them"
    )
