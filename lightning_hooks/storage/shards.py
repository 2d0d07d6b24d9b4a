"""A checkpoint in parts: a local folder, into which each rank has written its shards."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import torch

from lightning_hooks.storage import files, torch_files
from lightning_hooks.storage.checksum import crc32_of_bytes, remembered
from lightning_hooks.utils import ranks
from lightning_hooks.utils.secrets import describe

__all__ = [
    "Part",
    "advice_for_file",
    "begin_save",
    "checksum",
    "damage",
    "is_folder_of_shards",
    "parts",
    "remove",
]

Part: TypeAlias = tuple[str, int, str]
"""Name, size and CRC-32 of a file."""

_SHARD = re.compile(r"\.metadata(\.tmp)?|meta\.pt|__(\d+)_\d+\.distcp")
_META, _METADATA = "meta.pt", ".metadata"
_LAST_FILES = (_METADATA, "latest")  # the last file that torch writes, and DeepSpeed


def is_folder_of_shards(path: str) -> bool:
    """Return whether a local folder is a checkpoint in parts, one of each rank."""
    path = files.plain(path)
    return any(os.path.isfile(os.path.join(path, name)) for name in _LAST_FILES)


def advice_for_file(path: str) -> str:
    """Return how to make a file of a checkpoint directory, for messages.

    Lightning's ``consolidate_checkpoint`` raises KeyError for ``ModelParallelStrategy``'s.
    """
    return (
        "make a file of it (python -m torch.distributed.checkpoint.format_utils dcp_to_torch "
        f"{path} FILE: the weights are its 'state_dict', or 'model' for FSDPStrategy)"
    )


def begin_save(
    checkpoint: dict[str, Any], weights: str, path: str, world_size: int, group: Any
) -> Callable[[], None]:
    """Copy a checkpoint, and have torch write a part of each rank in a thread. Collective.

    The folder is as a strategy of Lightning's writes it, but the last file is ``.metadata``,
    without which the folder is no checkpoint.

    Args:
        checkpoint: Lightning's dict, of this rank.
        weights: The name of the weights among the parts.
        path: The folder.
        world_size: The number of ranks.
        group: A process group of all ranks with tensors on the CPU, for this save alone.

    Returns:
        A function that waits for the parts of all ranks; a RuntimeError names the errors of ranks.
    """
    # slow imports
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import async_save

    states = enumerate(checkpoint.pop("optimizer_states", ()))
    in_parts = {weights: checkpoint.pop("state_dict")}
    in_parts |= {f"optimizer_{number}": state for number, state in states}

    def begin_folder() -> str:
        folder = files.absolute(path)
        if os.path.isfile(folder):
            os.unlink(folder)
        files.make_directory(folder)
        files.delete(os.path.join(folder, _METADATA))  # of an earlier checkpoint of the name
        torch_files.save_torch(checkpoint, os.path.join(folder, _META))
        return folder

    folder = ranks.from_rank_0(begin_folder, world_size)
    # a FileSystemWriter copies FSDP's ShardedTensors too, which torch's default stager does not; to
    # be kept, the copy is in page-locked memory, which torch allocates once for all saves
    writer = FileSystemWriter(folder, cache_staged_state_dict=torch.cuda.is_available())
    save: Any = async_save(in_parts, storage_writer=writer, process_group=group)

    def wait() -> None:
        try:
            save.result()
        except CheckpointException as error:  # no Exception
            failures = [
                f"rank {rank}: {describe(cause)}" for rank, (cause, _) in error.failures.items()
            ]
            raise RuntimeError(f"parts are not written, of {', '.join(failures)}") from error

    return wait


def parts(path: str, rank: int = 0, world_size: int = 1) -> list[Part]:
    """Read the parts of torch's, and return their checksums: of all, or of a rank's own share.

    Args:
        path: The folder.
        rank: The rank, which reads its own shards; rank 0 reads all other files, too.
        world_size: The number of ranks; shards of higher ranks, left by an earlier run, are shared.
    """
    own = [
        entry
        for entry in os.scandir(files.plain(path))
        if (match := _SHARD.fullmatch(entry.name)) and int(match[2] or 0) % world_size == rank
    ]
    with ThreadPoolExecutor() as pool:
        return [*pool.map(_part, own)]


def checksum(parts: Iterable[Part]) -> str | None:
    """Return the checksum of a folder with these parts; None without any, as of DeepSpeed's.

    >>> checksum([("meta.pt", 3, "00c0ffee"), ("__0_0.distcp", 5, "0badcafe")])
    '87de218d'
    """
    table = sorted(parts)
    return f"{zlib.crc32(repr(table).encode()):08x}" if table else None


def damage(path: str, expected: str) -> str:
    """Describe the damage of a folder with a checksum; an intact folder gives an empty string."""
    with os.scandir(files.plain(path)) as listing:
        statuses = [(entry.path, entry.stat()) for entry in listing]

    def find() -> str:
        if expected == (present := checksum(parts(path))):
            return ""
        return f"is damaged: the CRC-32 of its parts is {present}, it was written with {expected}"

    return remembered(statuses, expected, find)


def remove(path: str) -> str:
    """Delete a folder with nothing but shards; return the reason to keep it, or an empty string."""
    path = files.plain(path)
    with os.scandir(path) as listing:
        found = [*listing]
    shards = [p for p in found if _SHARD.fullmatch(p.name) and p.is_file(follow_symlinks=False)]
    if not found or len(shards) != len(found):
        return "is a folder with more in it than the shards of a checkpoint"
    for part in shards:
        os.unlink(part.path)
    os.rmdir(path)
    return ""


def _part(entry: os.DirEntry[str]) -> Part:
    with files.opened(entry.path) as file:
        crc32 = crc32_of_bytes(file)
        return entry.name, file.tell(), crc32
