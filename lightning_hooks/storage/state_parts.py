"""What a checkpoint directory has in parts, beside the model's and the optimizers' states.

A strategy with sharded parameters writes ``state_dict`` and ``optimizer_states`` in parts, by
``torch.distributed.checkpoint``, and all else whole into ``meta.pt``. So further state dicts, and
what each rank has of its own, are written as the state of a further optimizer. In ``meta.pt`` a
tensor of the device ``meta`` stands for each tensor of a state dict. A rank writes, and reads, its
own random state alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from lightning_hooks.storage import layout
from lightning_hooks.utils import dtensors

__all__ = ["RANKS", "from_parts", "in_parts"]

PARTS = "parts"
"""The key of this package's part of a checkpoint for the place among ``optimizer_states``."""

RANKS = "ranks"
"""The key of the number of ranks that have written the directory."""


def in_parts(
    checkpoint: dict[str, Any], own_part: dict[str, Any], rank: int, world_size: int
) -> None:
    """Have a strategy write averages, raw weights and the states of ranks in parts.

    Args:
        checkpoint: Lightning's dict, of this rank.
        own_part: The part of this package, where the lists of ranks have this rank's item alone.
        rank: The rank.
        world_size: The number of ranks.
    """
    tree: dict[str, dict[str, Any]] = {}
    for name, holder, key in _states(checkpoint, own_part):
        state = holder[key]
        tree[name] = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        stand_ins = {
            k: torch.empty(v.shape, dtype=v.dtype, device="meta") for k, v in tree[name].items()
        }
        holder[key] = {**state, **stand_ins}
    of_rank = {key: own_part.pop(key)[0] for key in layout.OF_RANKS if key in own_part}
    if of_rank:
        own_part[RANKS] = world_size
        tree[RANKS] = {str(rank): _packed(of_rank)}
    if tree:
        optimizers = checkpoint.setdefault("optimizer_states", [])
        own_part[PARTS] = len(optimizers)
        optimizers.append({"state": tree, "param_groups": []})


def from_parts(
    checkpoint: dict[str, Any],
    own_part: dict[str, Any],
    find: Callable[[], tuple[str, Mapping[str, Any]]],
    rank: int = 0,
) -> None:
    """Read what :func:`in_parts` has put into parts. Collective, unless the file was consolidated.

    Args:
        checkpoint: Lightning's dict, as read from the file.
        own_part: The part of this package.
        find: Returns the path of the directory, and the model's state dict, with tensors sharded as
            the tensors to read.
        rank: The rank, which reads its own state; one without, in a larger run, reads rank 0's.

    Raises:
        DamagedCheckpointError: for values of another form than written.
    """
    if PARTS not in own_part:
        return
    place, world_size = own_part.pop(PARTS), own_part.get(RANKS, 0)
    states = [*_states(checkpoint, own_part)]
    if "optimizer_states" in checkpoint:  # Lightning has made a file of the directory
        tree = _taken(checkpoint["optimizer_states"], place)
    else:
        # slow imports
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.state_dict_loader import load

        path, present = find()
        like = {dtensors.uncompiled_key(key): value for key, value in present.items()}
        tree = {name: _empty(holder[key], like) for name, holder, key in states}
        if world_size:
            of_rank = str(rank if rank < world_size else 0)
            sizes: Any = FileSystemReader(path).read_metadata().state_dict_metadata
            size = sizes[f"optimizer_{place}.state.{RANKS}.{of_rank}"].size
            tree[RANKS] = {of_rank: torch.empty(size, dtype=torch.uint8)}
        load({f"optimizer_{place}": {"state": tree}}, checkpoint_id=path)
    for name, holder, key in states:
        kept = {k: v for k, v in holder[key].items() if not getattr(v, "is_meta", False)}
        holder[key] = {**kept, **tree.get(name, {})}
    _take_states_of_ranks(own_part, tree.get(RANKS, {}))


def _taken(optimizer_states: list[Any], place: int) -> dict[str, Any]:
    if place != len(optimizer_states) - 1:
        raise layout.DamagedCheckpointError(
            f"the checkpoint's {layout.OWN_PART!r} is damaged: {PARTS!r} must be the last place of "
            f"{len(optimizer_states)}, got {place}"
        )
    tree: dict[str, Any] = optimizer_states.pop()["state"]
    return tree


def _packed(of_rank: dict[str, Any]) -> torch.Tensor:
    """Return a value as the bytes of a file, which a reader need not execute."""
    file = io.BytesIO()
    torch.save(of_rank, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _take_states_of_ranks(own_part: dict[str, Any], packed: Mapping[str, torch.Tensor]) -> None:
    """Fill the lists of ranks with the states of some ranks; others have an empty list."""
    for rank, contents in sorted(packed.items(), key=lambda item: int(item[0])):
        try:
            file = io.BytesIO(contents.numpy().tobytes())
            of_rank = torch.load(file, map_location="cpu", weights_only=True)
            lists = {key: [of_rank[key]] for key in layout.OF_RANKS if key in of_rank}
        except Exception as error:  # torch raises errors of many types for a damaged file
            raise layout.DamagedCheckpointError(
                f"the state of rank {rank} in the checkpoint cannot be read: {error!r}"
            ) from error
        layout.check_layout({layout.OWN_PART: lists}, f"the checkpoint's state of rank {rank}")
        for key, states in lists.items():
            listed = own_part.setdefault(key, [])
            listed += [[]] * (int(rank) - len(listed)) + states


def _states(
    checkpoint: dict[str, Any], own_part: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name in the parts, the dict and the key of each state dict beside the model's."""
    if layout.RAW in checkpoint:
        yield layout.RAW, checkpoint, layout.RAW
    for number, record in enumerate(own_part.get("averages", ())):
        for key in ("state_dict", "exact"):
            if record.get(key):
                yield f"{number}.{key}", record, key


def _empty(stand_ins: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors to read into, of the types of the stand-ins, for the keys of the model."""
    return {
        key: dtensors.empty_like(like[key], value.dtype)
        for key, value in stand_ins.items()
        if getattr(value, "is_meta", False) and key in like
    }
