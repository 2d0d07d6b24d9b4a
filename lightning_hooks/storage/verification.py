"""Read checkpoints, and refuse damaged files and files of another kind."""

from __future__ import annotations

import os
import pickle
import posixpath
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.storage import checksum, files, find_checkpoints, manifest, torch_files
from lightning_hooks.storage.layout import DamagedCheckpointError, check_layout
from lightning_hooks.storage.shards import advice_for_file, is_folder_of_shards
from lightning_hooks.utils.secrets import without_user
from lightning_hooks.utils.warn import warn

__all__ = [
    "WeightsOnlyError",
    "check",
    "load",
    "newest_unlisted",
    "require_lightnings",
    "require_resumable",
    "verify",
]

LIGHTNINGS_KEY = "pytorch-lightning_version"
"""The key that tells Lightning's checkpoints from other files."""


class WeightsOnlyError(KeyError):
    """A run cannot be resumed from a file of weights; a KeyError, as Lightning's own error."""

    def __str__(self) -> str:
        return str(self.args[0])


def check(path: str) -> None:
    """Compare a file with the directory's manifest, or its own CRC-32s.

    Raises:
        FileNotFoundError: for a missing file.
        DamagedCheckpointError: for a damaged file.
        ValueError: for a directory with a part of each rank.
    """
    if is_folder_of_shards(path):
        raise ValueError(
            f"{without_user(path)} is a directory with a part of each rank, and this Trainer's "
            "strategy reads files: go on with the strategy that wrote the directory, which writes "
            "files with save_distributed_checkpoint=False (ModelParallelStrategy) or "
            "state_dict_type='full' (FSDPStrategy)"
        )
    try:
        is_file = files.size_of(path) is not None
    except FileNotFoundError:
        place = f"{without_user(path)}{_advice(path)}"
        raise FileNotFoundError(f"Checkpoint file not found: {place}") from None
    problem = _flaw(path) if is_file else "is a folder or a pipe, not a file"
    if problem:
        raise DamagedCheckpointError(f"{without_user(path)} {problem}{_advice(path)}")
    if problem is None:
        warn(
            f"{path} has no checksums in it and is in no {manifest.NAME} beside it, so it is not "
            "known whether it is as it was written. To give it some, save it again: "
            "torch.save(torch.load(path), path)",
        )


def load(
    path: str, map_location: Any = "cpu", weights_only: bool = True, *, checked: bool = False
) -> dict[str, Any]:
    """Check a file, and read the file.

    Args:
        path: The path.
        map_location: As of ``torch.load``.
        weights_only: Whether to read tensors and plain types alone.
        checked: Whether :func:`check` has been called, perhaps by another rank.

    Raises:
        FileNotFoundError: for a missing file.
        DamagedCheckpointError: for a damaged or unreadable file, and for other contents than a
            checkpoint.
        pickle.UnpicklingError: for a file with more than tensors and plain types.
    """
    if not checked:
        check(path)
    try:
        checkpoint = torch_files.load_torch(path, map_location, weights_only, verified=True)
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(f"{error}{_advice(path)}") from error.__cause__
    if not isinstance(checkpoint, dict):
        kind = type(checkpoint).__name__
        raise DamagedCheckpointError(f"{path} holds a {kind}, and a checkpoint is a dict")
    check_layout(checkpoint, path)
    return checkpoint


def verify(path: str, for_fit: bool, weights_only: bool = True) -> None:
    """Check a checkpoint before a strategy with shards reads the checkpoint.

    A directory is compared with the list beside it; its shards have no checksums in them.

    Raises:
        FileNotFoundError: for a missing file.
        DamagedCheckpointError: for a damaged file.
        pickle.UnpicklingError: for a file with more than tensors and plain types.
        WeightsOnlyError: for a file without the state to resume a run, in a fit.
    """
    if not os.path.isdir(path):
        checkpoint = load(path, "meta", weights_only)
        if for_fit:
            require_resumable(path, checkpoint)
        return
    if problem := _flaw(path):
        raise DamagedCheckpointError(f"{without_user(path)} {problem}{_advice(path)}")
    meta = os.path.join(path, "meta.pt")  # without this file, the strategy refuses the directory
    if os.path.exists(meta):
        rest = torch_files.load_torch(meta, "cpu", weights_only)
        check_layout(rest, meta)
        if for_fit and "lr_schedulers" not in rest:
            raise _weights_only(path, f"{advice_for_file(path)} and load that before")


def require_lightnings(path: str, checkpoint: Mapping[str, Any], for_fit: bool) -> None:
    """Raise unless a Trainer can resume from a checkpoint, or evaluate the checkpoint.

    Raises:
        WeightsOnlyError: for another layout than Lightning's; the message names the file's use.
    """
    if for_fit:
        require_resumable(path, checkpoint)
    if LIGHTNINGS_KEY in checkpoint:
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
        WeightsOnlyError: for another file; the message names the file's use.
    """
    is_lightnings = LIGHTNINGS_KEY in checkpoint
    if "meta" in checkpoint and "state_dict" in checkpoint and not is_lightnings:
        raise WeightsOnlyError(
            f"{path} is a checkpoint of mmcv's layout, as runner.save_checkpoint() writes it, from "
            "which Lightning cannot go on. Leave out ckpt_path, and go on from it with a hook that "
            f"calls runner.resume({path!r}) in before_run: "
            f"ClosureHook('before_run', lambda runner: runner.resume({path!r}))"
        )
    if "state_dict" in checkpoint and "optimizer_states" not in checkpoint:
        load = f"module.load_state_dict(torch.load({path!r})['state_dict'])"
        raise _weights_only(path, f"load them before and leave out ckpt_path: {load}")


def _weights_only(path: str, advice: str) -> WeightsOnlyError:
    return WeightsOnlyError(
        f"{path}: this checkpoint contains only the model (save_optimizer=False), a run cannot be "
        f"resumed from it. To start a new run with its weights, {advice}. To resume, save with "
        "save_optimizer=True"
    )


def newest_unlisted(directory: str, templates: Sequence[str], *, for_fit: bool) -> str | None:
    """Return the path of the newest checkpoint missing in the manifest, None without any.

    Try the target of ``latest.pth``, then the greatest numbers by the first template with any
    files. Pass over files that a Trainer cannot load, and warn of them. If all are, return the
    first, whose loading raises with the reason.

    Args:
        directory: The directory of the files.
        templates: File names with ``{}`` for the number.
        for_fit: Whether a run is resumed from the file.
    """
    listed = {entry.name for entry in manifest.read(directory)}
    linked = _target_of_link(directory)
    for template in templates:
        numbers = {
            path: (name == linked, number)
            for name, number in find_checkpoints.numbered(directory, template)
            for path in [files.join(directory, name)]
            if name not in listed and files.exists(path)  # not a broken link
            if files.size_of(path) is not None or is_folder_of_shards(path)
        }
        passed: dict[str, str] = {}
        for path in sorted(numbers, key=lambda path: numbers[path], reverse=True):
            problem = _refusal(path, for_fit)
            if not problem:
                passed_over = "".join(f"; {text} is passed over" for text in passed.values())
                warn(
                    f"{path} is in no {manifest.NAME} beside it, so it is not known whether it is "
                    "as it was written; it is taken for the newest checkpoint. For another one "
                    f"write its path as ckpt_path; to begin anew, leave ckpt_path out{passed_over}",
                )
                return path
            passed[path] = problem
        if passed:
            return next(iter(passed))
    return None


def _refusal(path: str, for_fit: bool) -> str:
    """Return why a Trainer cannot load a file; an empty string if it can, or for a folder."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file without checksums: loading warns
            if files.size_of(path) is not None:
                require_lightnings(path, load(path, "meta"), for_fit)
    except (DamagedCheckpointError, WeightsOnlyError) as error:
        return str(error)
    except pickle.UnpicklingError:  # objects of the user's own classes
        key = "optimizer_states" if for_fit else LIGHTNINGS_KEY
        return "" if torch_files.mentions(path, key) else f"{path} has no {key}"
    return ""


def _target_of_link(directory: str) -> str:
    """Return the target of ``latest.pth``, an empty string without the link."""
    try:
        return os.readlink(os.path.join(files.plain(directory), manifest.LATEST))
    except OSError:
        return ""


def _flaw(path: str) -> str | None:
    """Describe how a file differs from its entry, else from its CRC-32s; None without both."""
    directory, name = _listed_at(path)
    entries = [entry for entry in manifest.read(directory) if entry.name == name]
    flaws = {
        entry.flaw(directory, in_full=entry.crc32 is not None): entry.crc32 for entry in entries
    }
    if not flaws or ("" in flaws and flaws[""] is None):  # the list has no checksum
        return None if os.path.isdir(path) else checksum.flaw(path)
    return "" if "" in flaws else [*flaws][-1]


def _listed_at(path: str) -> tuple[str, str]:
    """Return the directory with the manifest of a file, and the file's name in the list."""
    local = files.is_local(path)
    paths: Any = os.path if local else posixpath
    if local:  # a link to the latest, too
        path = os.path.realpath(files.plain(path))
    directory, name = paths.split(path)
    parent, folder = paths.split(directory)  # for a filename_tmpl with a directory
    own, outer = (files.exists(files.join(d, manifest.NAME)) for d in (directory, parent or "."))
    return (parent, f"{folder}/{name}") if outer and not own else (directory, name)


def _advice(path: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caller reports the damaged file
        inside = find_checkpoints.newest_valid(path) if os.path.isdir(path) else None
        newest = inside or find_checkpoints.newest_valid(_listed_at(path)[0])
    place = "in" if inside else "beside"
    newest = without_user(newest or "")
    return f"; the newest valid checkpoint {place} it is {newest}" if newest else ""
