"""Read and write local and remote files with torch."""

from __future__ import annotations

import copy
import pickle
import zipfile
from typing import Any

import numpy as np
import torch

from lightning_hooks.storage import files
from lightning_hooks.storage.checksum import flaw
from lightning_hooks.storage.layout import DamagedCheckpointError

__all__ = [
    "load_pickle",
    "load_torch",
    "mentions",
    "numpy_globals",
    "save_torch",
    "to_cpu",
]


def save_torch(obj: Any, path: str) -> None:
    """Write with ``torch.save``, atomically, to a local or remote path."""
    if files.is_local(path):
        with files.atomic_path(path) as temporary:
            torch.save(obj, temporary)  # by name: past Python's buffers
        return
    with files.atomic_write(path) as file:
        torch.save(obj, file)


def load_torch(
    path: str, map_location: Any = "cpu", weights_only: bool = True, *, verified: bool = False
) -> Any:
    """Read with ``torch.load`` from a local or remote path, by default tensors and plain types.

    Args:
        path: The path.
        map_location: As in ``torch.load``.
        weights_only: As in ``torch.load``; False executes code from the file.
        verified: Whether the caller has verified the file; else its own CRC-32s are compared.

    Raises:
        DamagedCheckpointError: for a damaged file, with ``weights_only``.
        pickle.UnpicklingError: for a file with more than tensors and plain types.
    """
    problem = flaw(path) if weights_only and not verified else ""
    if problem:
        raise DamagedCheckpointError(f"{path} {problem}")
    with files.opened(path) as file, torch.serialization.safe_globals(numpy_globals()):
        try:
            return torch.load(file, map_location=map_location, weights_only=weights_only)
        except (OSError, pickle.UnpicklingError):
            raise
        except Exception as error:  # torch raises errors of many types for a damaged file
            if not weights_only:
                raise
            raise DamagedCheckpointError(f"{path} cannot be read: {error!r}") from error


def load_pickle(path: str) -> Any:
    """Read a pickle of arrays and plain types, as detectron2's model zoo has them.

    Raises:
        pickle.UnpicklingError: for a file with other objects, and for a damaged file.
    """
    with files.opened(path) as file:
        try:
            return _ArrayUnpickler(file, encoding="latin1").load()
        except (OSError, pickle.UnpicklingError):
            raise
        except Exception as error:  # a damaged pickle raises errors of many types
            raise pickle.UnpicklingError(f"{path} cannot be read: {error!r}") from error


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy's arrays and plain types, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("collections", "OrderedDict"), ("_codecs", "encode")):
            return super().find_class(module, name)
        named = (
            k if isinstance(k, tuple) else (k, f"{k.__module__}.{k.__name__}")
            for k in numpy_globals()
        )
        known = {path: kind for kind, path in named}
        path = f"{module}.{name}"
        if path not in known:
            raise pickle.UnpicklingError(f"{path} is neither an array nor a plain type")
        return known[path]


def mentions(path: str, key: str) -> bool:
    """Return whether a file may have a string in its pickle, without executing the pickle."""
    try:
        with files.opened(path) as file, zipfile.ZipFile(file) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
            return any(key.encode() in archive.read(name) for name in pickles)
    except zipfile.BadZipFile:  # of torch before 1.6
        return True


def numpy_globals() -> list[Any]:
    """Return numpy's types in old files, with numpy numbers as best scores in ``meta``."""
    kinds = {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdU"}
    return [*(k for k, _ in _OLD_GLOBALS), np.dtype, np.ndarray, *kinds, *_OLD_GLOBALS]


_OLD_GLOBALS = [
    (np.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (np.zeros(0).__reduce__()[0], "numpy.core.multiarray._reconstruct"),
]
"""numpy's functions in pickles, and their names before numpy 2."""


def to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict with tensors on the CPU."""
    on_cpu = copy.copy(state)  # with torch's ``_metadata``: the versions of the layers
    on_cpu.update((k, v.cpu()) for k, v in state.items() if isinstance(v, torch.Tensor))
    return on_cpu
