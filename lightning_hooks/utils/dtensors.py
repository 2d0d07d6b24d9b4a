"""Parameters that are spread over the ranks (DTensor): the part held here, and the whole.

What is called collective is to be called on all ranks, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = [
    "any_sharded",
    "bring_home",
    "gathered",
    "held",
    "is_sharded",
    "largest_of_ranks",
    "like",
    "part",
    "plain",
    "rows_of",
]


def is_sharded(value: Any) -> bool:
    """Whether a value is a DTensor, of which each rank holds a part or a replica."""
    return hasattr(value, "to_local")


def any_sharded(values: Iterable[Any]) -> bool:
    """Whether one of the values is a DTensor."""
    return any(is_sharded(value) for value in values)


def held(tensor: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor: of a plain one the tensor itself.

    It is the same object as long as the memory is: ``to_local()`` makes another one each time.
    """
    local: torch.Tensor = tensor._local_tensor if is_sharded(tensor) else tensor
    return local


def like(tensor: Any, local: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is spread over the ranks as another one is, with other values.

    Args:
        tensor: The other one; for a plain one the values are returned.
        local: The part of this rank, which is not copied.
    """
    if not is_sharded(tensor):
        return local
    spread: torch.Tensor = type(tensor).from_local(
        local,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,  # that would be a collective
        shape=tensor.shape,
        stride=tensor.stride(),
    )
    return spread


def part(whole: torch.Tensor, tensor: Any) -> torch.Tensor:
    """Return what this rank is to hold of a whole tensor, in the place and type of another one.

    There is no communication: every rank has the whole.
    """
    if not is_sharded(tensor):
        return whole.to(tensor)
    from torch.distributed.tensor import Replicate

    local = held(tensor)
    everywhere = type(tensor).from_local(
        whole.to(local),
        tensor.device_mesh,
        [Replicate()] * tensor.device_mesh.ndim,
        run_check=False,
    )
    return held(everywhere.redistribute(placements=tensor.placements))


def gathered(state: Mapping[str, Any], everywhere: bool = False) -> dict[str, Any]:
    """Return a state dict with whole tensors, on the CPU; collective, one tensor at a time.

    A state dict without a DTensor is returned as it is. Else the keys are those that
    distributed checkpoints have, see :func:`plain`.

    Args:
        state: Tensors and whatever else a state dict has.
        everywhere: Whether all ranks get it; otherwise it is empty on all but rank 0.
    """
    if not any_sharded(state.values()):
        return dict(state)
    keeps = everywhere or torch.distributed.get_rank() == 0
    found = {}
    for key, value in state.items():
        whole = value.full_tensor() if is_sharded(value) else value
        if keeps:
            found[plain(key)] = whole.cpu() if isinstance(whole, torch.Tensor) else whole
    return found


def largest_of_ranks(value: torch.Tensor, mesh: Any) -> torch.Tensor:
    """Return the largest of what the ranks of a device mesh have; collective."""
    from torch.distributed.tensor import DTensor, Partial

    spread = DTensor.from_local(value, mesh, [Partial("max")] * mesh.ndim, run_check=False)
    whole: torch.Tensor = spread.full_tensor()
    return whole


def rows_of(values: Any, tensor: Any) -> torch.Tensor:
    """Return values of the rows of a tensor (or one value of it all) for the rows held here.

    Plain values are returned as they are. Of a DTensor each rank gets those of its rows, whichever
    way the rows are spread; collective where that takes a sum over the ranks.
    """
    if not is_sharded(values):
        found: torch.Tensor = values
        return found
    from torch.distributed.tensor import Replicate

    rows = [
        placement if values.ndim and placement.is_shard(0) else Replicate()
        for placement in tensor.placements
    ]
    here: torch.Tensor = values.redistribute(placements=rows)
    return here


def plain(key: str) -> str:
    """Return a state dict's key as it is without ``torch.compile``.

    >>> plain("net._orig_mod.0.weight")
    'net.0.weight'
    """
    return key.replace("_orig_mod.", "")


def bring_home(module: torch.nn.Module) -> None:
    """Have FSDP2's parameters be shards: after a forward pass the module may have whole ones.

    Those of the outermost modules stay, for the backward pass that follows in training. After an
    evaluation none does, and the next forward pass would run with what they are, whatever the
    shards have become. Reading the state dict ends that, also where an error broke a pass off.
    """
    module.state_dict(keep_vars=True)
