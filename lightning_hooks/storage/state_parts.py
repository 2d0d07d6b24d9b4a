"""State dicts that a checkpoint directory has in parts, beside the model's own.

A strategy with sharded parameters writes ``state_dict`` and ``optimizer_states`` in parts, by
``torch.distributed.checkpoint``, and all else whole into ``meta.pt``. So further state dicts are
written as the state of a further optimizer. In ``meta.pt`` a tensor of the device ``meta`` stands
for each of their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from lightning_hooks.storage import layout
from lightning_hooks.utils import dtensors

__all__ = ["from_parts", "in_parts"]

PARTS = "parts"
"""The key of this package's part of a checkpoint for the place among ``optimizer_states``."""


def in_parts(checkpoint: dict[str, Any], own_part: dict[str, Any]) -> None:
    """Have a strategy write the averages and raw weights of a checkpoint in parts.

    Args:
        checkpoint: Lightning's dict, of this rank.
        own_part: The part of this package.
    """
    tree: dict[str, dict[str, Any]] = {}
    for name, holder, key in _states(checkpoint, own_part):
        state = holder[key]
        tree[name] = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        stand_ins = {
            k: torch.empty(v.shape, dtype=v.dtype, device="meta") for k, v in tree[name].items()
        }
        holder[key] = {**state, **stand_ins}
    if tree:
        optimizers = checkpoint.setdefault("optimizer_states", [])
        own_part[PARTS] = len(optimizers)
        optimizers.append({"state": tree, "param_groups": []})


def from_parts(
    checkpoint: dict[str, Any],
    own_part: dict[str, Any],
    find: Callable[[], tuple[str, Mapping[str, Any]]],
) -> None:
    """Read what :func:`in_parts` has put into parts. Collective, unless the file was consolidated.

    Args:
        checkpoint: Lightning's dict, as read from the file.
        own_part: The part of this package.
        find: Returns the path of the directory, and the model's state dict, with tensors sharded as
            the tensors to read.
    """
    if PARTS not in own_part:
        return
    place = own_part.pop(PARTS)
    states = [*_states(checkpoint, own_part)]
    if "optimizer_states" in checkpoint:  # Lightning has made a file of the directory
        tree = _taken(checkpoint["optimizer_states"], place)
    else:
        from torch.distributed.checkpoint.state_dict_loader import load  # a slow import

        path, present = find()
        like = {dtensors.uncompiled_key(key): value for key, value in present.items()}
        tree = {name: _empty(holder[key], like) for name, holder, key in states}
        load({f"optimizer_{place}": {"state": tree}}, checkpoint_id=path)
    for name, holder, key in states:
        kept = {k: v for k, v in holder[key].items() if not getattr(v, "is_meta", False)}
        holder[key] = {**kept, **tree.get(name, {})}


def _taken(optimizer_states: list[Any], place: int) -> dict[str, Any]:
    if place != len(optimizer_states) - 1:
        raise layout.DamagedCheckpointError(
            f"the checkpoint's {layout.OWN_PART!r} is damaged: {PARTS!r} must be the last place of "
            f"{len(optimizer_states)}, got {place}"
        )
    tree: dict[str, Any] = optimizer_states.pop()["state"]
    return tree


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
