"""Write weights alone, in the format that a file's ending names: torch's or safetensors."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import torch

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.torch_files import save_torch, to_cpu
from lightning_hooks.utils import dtensors
from lightning_hooks.utils.packages import require

__all__ = [
    "check_ending",
    "entry_of",
    "facts_of",
    "is_safetensors",
    "write_weights",
]

TORCH = (".pth", ".pt", ".ckpt")
"""Endings of ``torch.save``'s files."""

SAFETENSORS = ".safetensors"


def check_ending(path: str, name: str) -> None:
    """Raise unless a file's ending names a format that can be written.

    Args:
        path: The path.
        name: What the user has called, for the message.

    Raises:
        ValueError: for an unknown ending.
        ImportError: for ``.safetensors`` without the package.
    """
    ending = PurePath(path).suffix
    if ending not in (*TORCH, SAFETENSORS):
        raise ValueError(
            f"{name} cannot tell the format of {path!r} by its ending {ending!r}: the endings are "
            f"{TORCH[0]!r} (also {', '.join(map(repr, TORCH[1:]))}), a file of torch.save, and "
            f"{SAFETENSORS!r}"
        )
    if ending == SAFETENSORS:
        require("safetensors", name)


def is_safetensors(path: str) -> bool:
    """Return whether a path has safetensors' ending."""
    return path.endswith(SAFETENSORS)


def write_weights(state: Mapping[str, Any], path: str, facts: Mapping[str, str]) -> None:
    """Write a state dict atomically; rank 0 writes a sharded state dict whole (collective).

    A file of safetensors has each of several tied weights once, under the first name, and the other
    names in its metadata, as ``safetensors.torch.save_model`` writes and ``load_model`` reads.

    Args:
        state: The state dict.
        path: A local or remote path; ``.safetensors`` names the format, every other ending torch's.
        facts: Texts for safetensors' metadata, beside ``format``.

    Raises:
        ValueError: for a value that safetensors has no place for.
    """
    path = files.plain(path)
    if is_safetensors(path):
        _require_tensors(state, path)  # on all ranks: some may hold nothing later
    whole = dtensors.gathered(state)
    if whole and is_safetensors(path):
        _write_safetensors(whole, path, {"format": "pt", **facts})
    elif whole:
        save_torch(to_cpu(whole), path)
    if dtensors.any_sharded(state.values()):
        torch.distributed.barrier()  # the next reader may be another rank


def _require_tensors(state: Mapping[str, Any], path: str) -> None:
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{path} cannot have {key!r}, a {type(value).__name__}: a file of safetensors has "
                f"tensors alone; the ending {TORCH[0]!r} gives a file of torch.save"
            )


def _write_safetensors(state: Mapping[str, Any], path: str, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_model

    tensors = _compact(state)
    weights: Any = SimpleNamespace(state_dict=lambda: tensors)  # all that save_model asks for
    if files.is_local(path):
        with files.atomic_path(path) as temporary:
            save_model(weights, temporary, metadata)
        return
    with tempfile.TemporaryDirectory() as folder, files.atomic_write(path) as file:
        local = os.path.join(folder, "weights.safetensors")
        save_model(weights, local, metadata)
        with open(local, "rb") as written:
            shutil.copyfileobj(written, file)


def _compact(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors on the CPU that fill their memory; equal tensors in memory stay one tensor."""
    copies: dict[Any, torch.Tensor] = {}
    compact = {}
    for key, value in state.items():
        place = value.device, value.data_ptr(), value.dtype, value.shape, value.stride()
        if place not in copies:
            size = value.numel() * value.element_size()
            fills = value.is_contiguous() and value.untyped_storage().nbytes() == size
            copies[place] = (value if fills else value.clone()).detach().cpu().contiguous()
        compact[key] = copies[place]
    return compact


# -- what a directory's list says of a file ------------------------------------------------


def entry_of(path: str) -> Entry | None:
    """Return the last entry of a file in the list of its directory."""
    directory, name = os.path.split(path)
    return manifest.by_name(manifest.read(directory)).get(name)


def facts_of(path: str) -> dict[str, str]:
    """Return the run, epoch, iteration and, of a best file, metric and score of a listed file."""
    entry = entry_of(path)
    if entry is None:
        return {}
    facts = {"run": entry.run, "epoch": str(entry.epoch), "iter": str(entry.iter)}
    scored = {} if entry.score is None else {"metric": entry.metric, "score": f"{entry.score}"}
    return {**facts, **scored}
