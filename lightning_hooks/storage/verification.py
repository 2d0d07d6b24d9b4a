"""Read checkpoints that may be damaged, or of the wrong kind."""

from __future__ import annotations

import os
import posixpath
import warnings
from collections.abc import Mapping
from typing import Any

from lightning_hooks.storage import earlier_files, files, manifest, torch_files
from lightning_hooks.storage.torch_files import DamagedCheckpointError

__all__ = [
    "DamagedCheckpointError",
    "WeightsOnlyError",
    "load",
    "require_lightnings",
    "require_resumable",
    "verify",
]


class WeightsOnlyError(KeyError):
    """A run cannot be resumed from a file of weights; Lightning raises a KeyError there too."""

    def __str__(self) -> str:
        return str(self.args[0])


def load(path: str, map_location: Any = "cpu", weights_only: bool = True) -> dict[str, Any]:
    """Read a file after comparing it with the manifest of its directory, or its own checksums.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedCheckpointError: if it differs, or cannot be read, or is no checkpoint.
        pickle.UnpicklingError: if there is more in it than tensors and plain types.
    """
    try:
        is_folder = files.size_of(path) is None
    except FileNotFoundError:
        raise FileNotFoundError(f"Checkpoint file not found: {path}{_advice(path)}") from None
    problem = "is a folder, not a file" if is_folder else _flaw(path)
    if problem:
        raise DamagedCheckpointError(f"{path} {problem}{_advice(path)}")
    if problem is None:
        warnings.warn(
            f"{path} has no checksums in it and is in no {manifest.NAME} beside it, so it is not "
            "known whether it is as it was written. To give it some, save it again: "
            "torch.save(torch.load(path), path)",
            stacklevel=2,
        )
    try:
        found = torch_files.load_torch(path, map_location, weights_only, verified=True)
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(f"{error}{_advice(path)}") from error.__cause__
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise DamagedCheckpointError(f"{path} holds a {kind}, and a checkpoint is a dict")
    return found


def verify(path: str, for_fit: bool, weights_only: bool = True) -> None:
    """Check a checkpoint that a strategy with shards is about to read by itself.

    In a directory, only the file beside the shards is checked.

    Raises:
        FileNotFoundError: if there is none.
        DamagedCheckpointError: if it is not as it was written.
        pickle.UnpicklingError: if there is more in it than tensors and plain types.
        WeightsOnlyError: if a run is to be resumed from it and cannot be.
    """
    if not os.path.isdir(path):
        checkpoint = load(path, "meta", weights_only)
        if for_fit:
            require_resumable(path, checkpoint)
        return
    beside = os.path.join(path, "meta.pt")  # without it, it is no checkpoint to the strategy
    if os.path.exists(beside):
        rest = torch_files.load_torch(beside, "cpu", weights_only)
        if for_fit and "lr_schedulers" not in rest:
            raise WeightsOnlyError(
                f"{path}: this checkpoint contains only the model (save_optimizer=False), a run "
                "cannot be resumed from it. To start a new run with its weights, make a file of it "
                f"(python -m lightning.pytorch.utilities.consolidate_checkpoint {path}) and load "
                "that before. To resume, save with save_optimizer=True"
            )


def require_lightnings(path: str, checkpoint: Mapping[str, Any], for_fit: bool) -> None:
    """Raise unless a Trainer can go on from a checkpoint, or evaluate it.

    Raises:
        WeightsOnlyError: if it cannot; the message names the use of such a file.
    """
    if for_fit:
        require_resumable(path, checkpoint)
    if "pytorch-lightning_version" in checkpoint:
        return
    state = "['state_dict']" if "state_dict" in checkpoint else ""
    raise WeightsOnlyError(
        f"{path} has weights, and is no checkpoint of Lightning's. Load them before, and leave out "
        f"ckpt_path: module.load_state_dict(torch.load({path!r}){state}); of a file that "
        "runner.save_checkpoint() has written they are those of runner.model.module"
    )


def require_resumable(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint has the optimizers' states, in Lightning's layout.

    Raises:
        WeightsOnlyError: if it has not; the message names the use of such a file.
    """
    is_lightnings = "pytorch-lightning_version" in checkpoint
    if "meta" in checkpoint and "state_dict" in checkpoint and not is_lightnings:
        raise WeightsOnlyError(
            f"{path} is a checkpoint of mmcv's layout, as runner.save_checkpoint() writes it, from "
            "which Lightning cannot go on. Leave out ckpt_path, and go on from it with a hook that "
            f"calls runner.resume({path!r}) in before_run: "
            f"ClosureHook('before_run', lambda runner: runner.resume({path!r}))"
        )
    if "state_dict" in checkpoint and "optimizer_states" not in checkpoint:
        raise WeightsOnlyError(
            f"{path}: this checkpoint contains only the model (save_optimizer=False), a run cannot "
            "be resumed from it. To start a new run with its weights, load them before and leave "
            f"out ckpt_path: module.load_state_dict(torch.load({path!r})['state_dict']). "
            "To resume, save with save_optimizer=True"
        )


def _flaw(path: str) -> str | None:
    """Describe how a file differs from its entry, else from its own checksums; None without any."""
    directory, name = _listed_at(path)
    entries = [entry for entry in manifest.read(directory) if entry.name == name]
    found = {
        manifest.flaw(directory, entry, in_full=entry.crc32 is not None): entry.crc32
        for entry in entries
    }
    if not found or ("" in found and found[""] is None):  # the list has no checksum of it
        return torch_files.flaw(path)
    return "" if "" in found else [*found][-1]


def _listed_at(path: str) -> tuple[str, str]:
    """Return the directory whose manifest lists a file, and the file's name there."""
    local = files.is_local(path)
    paths: Any = os.path if local else posixpath
    if local:  # a link to the latest, too
        path = os.path.realpath(path.removeprefix("file://"))
    directory, name = paths.split(path)
    above, folder = paths.split(directory)  # of a filename_tmpl with a directory in it
    here, there = (files.exists(files.join(d, manifest.NAME)) for d in (directory, above or "."))
    return (above, f"{folder}/{name}") if there and not here else (directory, name)


def _advice(path: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about this very file
        inside = earlier_files.newest_valid(path) if os.path.isdir(path) else None
        newest = inside or earlier_files.newest_valid(_listed_at(path)[0])
    place = "in" if inside else "beside"
    return f"; the newest valid checkpoint {place} it is {newest}" if newest else ""
