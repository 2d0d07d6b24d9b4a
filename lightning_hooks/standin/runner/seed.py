"""mmcv's helpers for a run: seeds, the host's name, the time, objects from dicts."""

from __future__ import annotations

import os
import random
import sys
import time
from getpass import getuser
from socket import gethostname
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_hooks.standin.utils.dist import get_dist_info
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.warn import warn

__all__ = [
    "get_host_info",
    "get_time_str",
    "obj_from_dict",
    "set_random_seed",
    "worker_init_fn",
]


def get_host_info() -> str:
    """Return ``user@host``, or an empty string if it cannot be determined."""
    try:
        return f"{getuser()}@{gethostname()}"
    except Exception as error:
        warn(f"Host or user not found: {error}")
        return ""


def get_time_str() -> str:
    """Return the time as ``20240131_235959``."""
    return time.strftime("%Y%m%d_%H%M%S", time.localtime())


def set_random_seed(seed: int, deterministic: bool = False, use_rank_shift: bool = False) -> None:
    """Seed Python, NumPy and torch.

    Args:
        seed: The seed.
        deterministic: Whether cuDNN uses deterministic algorithms.
        use_rank_shift: Whether the rank is added to the seed.
    """
    seed += get_dist_info()[0] if use_rank_shift else 0
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def worker_init_fn(worker_id: int, num_workers: int, rank: int, seed: int) -> None:
    """Seed a worker process of a DataLoader, differently for each worker and rank."""
    own = num_workers * rank + worker_id + seed
    np.random.seed(own)
    random.seed(own)
    torch.manual_seed(own)


def obj_from_dict(
    info: dict[str, Any],
    parent: ModuleType | None = None,
    default_args: dict[str, Any] | None = None,
) -> Any:
    """Build ``info["type"](**the rest)``.

    Args:
        info: The config; ``type`` is a class, or the name of one in ``parent``.
        parent: The module of the named class; None takes ``type`` as the name of an imported
            module.
        default_args: Defaults for keys missing from ``info``.
    """
    if not isinstance(info, dict) or "type" not in info:
        raise AssertionError(f'info must be a dict with the key "type", got {shown(info)}')
    arguments = {**(default_args or {}), **info}
    kind = arguments.pop("type")
    if isinstance(kind, str):
        kind = sys.modules[kind] if parent is None else getattr(parent, kind)
    elif not isinstance(kind, type):
        raise TypeError(f"type must be a str or a class, got {shown(kind)}")
    return kind(**arguments)
