"""Read and write local and remote files with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec
import numpy as np
import torch

from lightning_hooks.storage import files
from lightning_hooks.utils import dtensors

__all__ = ["load_torch", "save_state_dict", "save_torch", "to_cpu"]


def save_torch(obj: Any, path: str) -> None:
    """Write with ``torch.save``, atomically, to a local or remote path."""
    if files.is_local(path):
        with files.atomic_path(path) as temporary:
            torch.save(obj, temporary)  # by name: it need not go through Python's buffers
        return
    with files.atomic_write(path) as file:
        torch.save(obj, file)


def save_state_dict(state: Mapping[str, Any], path: str) -> None:
    """Write a state dict on the CPU; of a sharded one rank 0 writes the whole (collective)."""
    whole = to_cpu(dtensors.gathered(state))
    if whole:
        save_torch(whole, path)
    if dtensors.any_sharded(state.values()):
        torch.distributed.barrier()  # the next reader may be another rank


def load_torch(path: str, map_location: Any = "cpu", weights_only: bool = True) -> Any:
    """Read with ``torch.load`` from a local or remote path, by default tensors and plain types."""
    with fsspec.open(path, "rb") as file, torch.serialization.safe_globals(_numpy_globals()):
        return torch.load(file, map_location=map_location, weights_only=weights_only)


def _numpy_globals() -> list[Any]:
    """Return the types in files whose ``meta`` holds numpy numbers, as old best scores are."""
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    kinds = {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdU"}
    old = [(scalar, "numpy.core.multiarray.scalar")]
    old.append((array, "numpy.core.multiarray._reconstruct"))
    return [scalar, array, np.dtype, np.ndarray, *kinds, *old]


def to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict whose tensors are on the CPU."""
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
