"""The names of MMEngine that mmcv-lite's files import, as mmcv 1.x had them.

The files import them from MMEngine's packages (``mmengine.utils``, ``mmengine.model``, ...); here
they are all together, and :data:`fileio` is the module itself.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lightning_hooks.engine.hook import Hook
from lightning_hooks.standin._hooks.registry import HOOKS
from lightning_hooks.standin.cnn.base_module import BaseModule, ModuleList, Sequential
from lightning_hooks.standin.cnn.weight_init import (
    constant_init,
    kaiming_init,
    normal_init,
    xavier_init,
)
from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.standin.fileio.io import dump, load
from lightning_hooks.standin.fileio.path import (
    check_file_exist,
    is_filepath,
    mkdir_or_exist,
    scandir,
)
from lightning_hooks.standin.runner.checkpoint import load_checkpoint
from lightning_hooks.standin.utils import logging
from lightning_hooks.standin.utils.config import ConfigDict
from lightning_hooks.standin.utils.env import TORCH_VERSION, is_cuda_available, is_rocm_pytorch
from lightning_hooks.standin.utils.misc import (
    deprecated_api_warning,
    is_str,
    is_tuple_of,
    requires_executable,
    to_2tuple,
)
from lightning_hooks.standin.utils.progressbar import track_progress
from lightning_hooks.standin.utils.version import digit_version

__all__ = [
    "HOOKS",
    "TORCH_VERSION",
    "BaseModule",
    "ConfigDict",
    "FileClient",
    "Hook",
    "ModuleList",
    "Sequential",
    "SyncBatchNorm",
    "_BatchNorm",
    "_InstanceNorm",
    "check_file_exist",
    "constant_init",
    "deprecated_api_warning",
    "digit_version",
    "dump",
    "fileio",
    "get",
    "is_cuda_available",
    "is_filepath",
    "is_musa_available",
    "is_rocm_pytorch",
    "is_str",
    "is_tuple_of",
    "kaiming_init",
    "load",
    "load_checkpoint",
    "mkdir_or_exist",
    "normal_init",
    "print_log",
    "put",
    "requires_executable",
    "scandir",
    "to_2tuple",
    "track_progress",
    "xavier_init",
]

fileio = sys.modules[__name__]


def get(path: str, backend_args: Any = None) -> Any:
    """Read a file's bytes."""
    return FileClient.infer_client(backend_args, path).get(path)


def put(content: bytes, path: str, backend_args: Any = None) -> None:
    """Write a file's bytes."""
    FileClient.infer_client(backend_args, path).put(content, path)


def is_musa_available() -> bool:
    """Whether there is a GPU of Moore Threads; Lightning has no accelerator for it."""
    return False


def print_log(message: str, logger: Any = None) -> None:
    """Log a message; MMEngine's ``current`` logger is mmcv's own."""
    logging.print_log(message, logging.get_logger("mmcv") if logger == "current" else logger)
