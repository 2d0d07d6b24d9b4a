"""Describe the machine and the installation."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

import lightning_hooks
from lightning_hooks.standin.version_window import mmcv_version

__all__ = [
    "IS_CUDA_AVAILABLE",
    "IS_IPU_AVAILABLE",
    "IS_MLU_AVAILABLE",
    "IS_MPS_AVAILABLE",
    "IS_MUSA_AVAILABLE",
    "IS_NPU_AVAILABLE",
    "check_ops_exist",
    "collect_env",
    "get_device",
    "is_ipu_available",
    "is_mlu_available",
    "is_musa_available",
    "is_npu_available",
    "is_rocm_pytorch",
    "jit",
    "parrots_jit_option",
    "skip_no_elena",
    "torch_meshgrid",
]

IS_CUDA_AVAILABLE = torch.cuda.is_available()
IS_MPS_AVAILABLE = torch.backends.mps.is_available()
parrots_jit_option = os.getenv("PARROTS_JIT_OPTION")
# Lightning has no accelerators for these devices
IS_IPU_AVAILABLE = IS_MLU_AVAILABLE = IS_MUSA_AVAILABLE = IS_NPU_AVAILABLE = False


def _get_dataloader() -> tuple[type, type]:
    """Return the DataLoader class twice, as mmcv does with torch."""
    return DataLoader, DataLoader


def is_ipu_available() -> bool:
    """Return False: Lightning has no accelerator for the device."""
    return False


is_mlu_available = is_musa_available = is_npu_available = is_ipu_available


def get_device() -> str:
    """Return the available device: ``"cuda"``, ``"mps"`` or ``"cpu"``."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_ops_exist() -> bool:
    """Return whether ``mmcv.ops`` has operators, not only placeholders."""
    return hasattr(importlib.import_module("mmcv.ops"), "__file__")


def is_rocm_pytorch() -> bool:
    """Return whether torch was built for AMD GPUs."""
    return getattr(torch.version, "hip", None) is not None


def torch_meshgrid(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return ``torch.meshgrid`` with matrix indexing."""
    return torch.meshgrid(*tensors, indexing="ij")


def jit(
    func: Callable[..., Any] | None = None,
    check_input: Any = None,
    full_shape: bool = True,
    derivate: bool = False,
    coderize: bool = False,
    optimize: bool = False,
) -> Any:
    """Decorate without effect, as mmcv does outside of Parrots."""
    return func if callable(func) else (lambda function: function)


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged."""
    return func


def collect_env() -> dict[str, Any]:
    """Return versions and devices under mmcv's keys."""
    info: dict[str, Any] = {
        "sys.platform": sys.platform,
        "Python": sys.version.replace("\n", ""),
        "CUDA available": torch.cuda.is_available(),
    }
    devices: dict[str, list[str]] = {}
    for index in range(torch.cuda.device_count()):
        devices.setdefault(torch.cuda.get_device_name(index), []).append(str(index))
    info.update({f"GPU {','.join(numbers)}": name for name, numbers in devices.items()})
    compiler = shutil.which("gcc")
    info["GCC"] = "n/a"
    if compiler:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
        info["GCC"] = done.stdout.partition("\n")[0].strip() or "n/a"
    info["PyTorch"] = torch.__version__
    info["PyTorch compiling details"] = torch.__config__.show()
    for title, package in (("TorchVision", "torchvision"), ("OpenCV", "cv2")):
        if package in sys.modules:
            info[title] = getattr(sys.modules[package], "__version__", "n/a")
    info["MMCV"] = f"{mmcv_version()} (stand-in of lightning_hooks {lightning_hooks.__version__})"
    info["MMCV Compiler"] = info["MMCV CUDA Compiler"] = "n/a"
    return info
