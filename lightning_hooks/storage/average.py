"""Average the weights of several checkpoint files: the last, the best, or any of one model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.storage import (
    files,
    find_checkpoints,
    manifest,
    torch_files,
    verification,
    weights,
)
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.utils.arguments import check_path, shown

__all__ = ["average_checkpoints", "best_files", "last_files"]

KEPT = (
    *("pytorch-lightning_version", "epoch", "global_step"),
    *("hparams_name", "hparams_type", "hyper_parameters"),
    *("datamodule_hparams_name", "datamodule_hparams_type", "datamodule_hyper_parameters"),
)
"""What ``load_from_checkpoint`` reads beside the weights."""


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Return a checkpoint with the mean of the weights of several files.

    ``mean = sum(weights of each file) / number of files``, in float32, or float64 for weights of
    this type. Integers, as BatchNorm's counts, are the last file's. Of files with an average as
    ``state_dict`` the averages are taken. Memory is needed for two files, however many are given.

    The result loads with ``load_from_checkpoint`` and ``load_state_dict``. No run is resumed from
    it: it has neither counters nor the states of optimizers and hooks.

    Args:
        paths: At least two files of one model, local or remote; hyper-parameters are the last's.
        out: A file to write, ``.pth``, ``.pt`` or ``.ckpt``; ``.safetensors`` gets the weights
            alone, and the files' names as metadata.

    Raises:
        TypeError: unless the paths are a list of paths.
        ValueError: for fewer than two files, for files with other keys, shapes or kinds of
            numbers, with the names of both, for another ending of ``out``, and for an ``out`` that
            is one of the files.
        ImportError: for ``.safetensors`` without the package.
        FileNotFoundError: for a missing file.
        RuntimeError: for a damaged file.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> paths = [f"{folder}/{n}.pth" for n in (1, 2)]
    >>> for n, path in enumerate(paths):
    ...     torch.save({"state_dict": {"w": torch.tensor([2.0 * n]), "n": torch.tensor(n)}}, path)
    >>> average_checkpoints(paths)["state_dict"]
    {'w': tensor([1.]), 'n': tensor(1)}

    Source: "Averaging Weights Leads to Wider Optima" (2018) and "Model soups" (2022), as fairseq's
    ``average_checkpoints.py``.
    """
    if not isinstance(paths, (list, tuple)):
        raise TypeError(f"paths must be a list of paths, got {shown(paths)}")
    names = [files.plain(str(check_path(f"paths[{i}]", path))) for i, path in enumerate(paths)]
    if len(names) < 2:
        raise ValueError(f"an average needs at least two files, got {names}")
    if out is not None:
        weights.check_ending(os.fspath(out), "average_checkpoints()")
        if os.path.realpath(files.plain(os.fspath(out))) in map(os.path.realpath, names):
            raise ValueError(f"out={os.fspath(out)!r} is one of the files to average")
    sums: dict[str, torch.Tensor] = {}
    state: dict[str, Any] = {}
    for number, name in enumerate(names):
        checkpoint = verification.load(name)
        state = dict(checkpoint.get("state_dict", checkpoint))
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        numbers = {k: v for k, v in tensors.items() if v.is_floating_point() or v.is_complex()}
        if number == 0:
            sums = {k: v.to(_wide(v.dtype), copy=True) for k, v in numbers.items()}
            forms = {k: _form(v) for k, v in tensors.items()}
            continue
        _check_same(forms, {k: _form(v) for k, v in tensors.items()}, names[0], name)
        for key, value in numbers.items():
            sums[key] += value.to(sums[key].dtype)
    means = {k: (v / len(names)).to(state[k].dtype) for k, v in sums.items()}
    kept = {key: checkpoint[key] for key in KEPT if key in checkpoint}
    soup = {**kept, "state_dict": {**state, **means}}
    if out is not None:
        _write(soup, files.plain(os.fspath(out)), names)
    return soup


def _write(soup: dict[str, Any], path: str, names: Sequence[str]) -> None:
    if not weights.is_safetensors(path):
        return torch_files.save_torch(soup, path)
    runs = {weights.facts_of(name).get("run", "") for name in names}
    facts = {"mean_of": " ".join(map(os.path.basename, names)), "run": " ".join(sorted(runs))}
    return weights.write_weights(soup["state_dict"], path, facts)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or the type itself if wider; torch promotes no type of eight bits."""
    is_narrow = dtype.is_floating_point and dtype.itemsize < 4
    return torch.float32 if is_narrow else torch.promote_types(dtype, torch.float32)


def _form(tensor: torch.Tensor) -> str:
    kind = "" if tensor.is_floating_point() else " of integers"
    return f"{[*tensor.shape]}{' of complex numbers' if tensor.is_complex() else kind}"


def _check_same(first: dict[str, str], other: dict[str, str], name: str, other_name: str) -> None:
    for forms, where, lacking in ((first, name, other_name), (other, other_name, name)):
        missing = sorted(forms.keys() - first.keys()) or sorted(forms.keys() - other.keys())
        if missing:
            raise ValueError(f"{where} has the weight {missing[0]!r}, and {lacking} has not")
    for key, form in first.items():
        if other[key] != form:
            raise ValueError(
                f"the weight {key!r} has the shape {form} in {name}, and {other[key]} in "
                f"{other_name}"
            )


def best_files(directory: str, count: int) -> list[str]:
    """Return the paths of the best files of the run that has saved one last, the best first."""
    return _intact(directory, find_checkpoints.best_first(directory), count, "best")


def last_files(directory: str, count: int) -> list[str]:
    """Return the paths of the last files of the newest run, the oldest first."""
    entries = manifest.read(directory)
    named = [*manifest.by_name(entry for entry in entries if entry.score is None).values()]
    of_run = [entry for entry in named if entry.run == named[-1].run]
    return _intact(directory, of_run[::-1], count, "last")[::-1]


def _intact(directory: str, entries: Sequence[Entry], count: int, kind: str) -> list[str]:
    """Return the paths of the first files.

    Raises:
        DamagedCheckpointError: if one of them is damaged or missing.
        ValueError: if there are fewer.
    """
    for entry in entries[:count]:
        if problem := entry.flaw(directory):
            path = files.join(directory, entry.name)
            raise DamagedCheckpointError(f"{path} {problem}")
    if len(entries) < count:
        raise ValueError(
            f"{directory} has {len(entries)} {kind} files in its list {manifest.NAME}, not {count}"
        )
    return [files.join(directory, entry.name) for entry in entries[:count]]
