"""Convert between sharded tensors (DTensor), the local part of a rank, and whole tensors.

Functions marked as collective must be called on all ranks, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

__all__ = [
    "any_sharded",
    "empty_like",
    "gathered",
    "is_sharded",
    "largest_of_ranks",
    "load_whole",
    "local_part",
    "reshard",
    "rows_of",
    "shard_of",
    "sharded_like",
    "uncompiled_key",
]


TOGETHER = 2**26
"""The most bytes of whole tensors that are gathered together, unless one alone has more."""


def is_sharded(value: Any) -> bool:
    """Whether a value is a DTensor: each rank holds a part or a replica."""
    return hasattr(value, "to_local")


def any_sharded(values: Iterable[Any]) -> bool:
    """Whether any of the values is a DTensor."""
    return any(is_sharded(value) for value in values)


def local_part(tensor: Any) -> torch.Tensor:
    """Return the local part of a tensor; a plain tensor is returned itself.

    The same memory gives the same object; ``to_local()`` makes a new object each time.
    """
    local: torch.Tensor = tensor._local_tensor if is_sharded(tensor) else tensor
    return local


def sharded_like(tensor: Any, local: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the sharding of another tensor and new values.

    Args:
        tensor: The tensor with the sharding; for a plain tensor ``local`` is returned.
        local: The local part of the values; not copied.
    """
    if not is_sharded(tensor):
        return local
    spread: torch.Tensor = type(tensor).from_local(
        local,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,  # the check is a collective
        shape=tensor.shape,
        stride=tensor.stride(),
    )
    return spread


def empty_like(tensor: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor with the shape, sharding and device of another tensor, and any values."""
    return sharded_like(tensor, torch.empty_like(local_part(tensor), dtype=dtype))


def shard_of(whole: torch.Tensor, tensor: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the local part of a whole tensor, with another tensor's sharding, device and type.

    Nothing is communicated: every rank has the whole tensor, or the local part already.

    Args:
        whole: The whole tensor.
        tensor: The other tensor.
        dtype: The type of the result, if not that of the other tensor.
    """
    local = local_part(whole).to(local_part(tensor).device, dtype or tensor.dtype)
    if is_sharded(whole) or not is_sharded(tensor):
        return local
    from torch.distributed.tensor import Replicate

    replicated = type(tensor).from_local(
        local,
        tensor.device_mesh,
        [Replicate()] * tensor.device_mesh.ndim,
        run_check=False,
    )
    return local_part(replicated.redistribute(placements=tensor.placements))


def gathered(state: Mapping[str, Any], everywhere: bool = False) -> dict[str, Any]:
    """Return a state dict with whole tensors on the CPU. Collective.

    A state dict without a DTensor is returned as a copy. Otherwise the keys are the keys of
    distributed checkpoints, see :func:`uncompiled_key`.

    Args:
        state: Tensors and other values of a state dict.
        everywhere: Whether all ranks get the result; otherwise only rank 0, and the result is
            empty on other ranks.
    """
    if not any_sharded(state.values()):
        return dict(state)
    keeps = everywhere or torch.distributed.get_rank() == 0
    names = [key for key, value in state.items() if is_sharded(value)]
    whole = dict(state) if keeps else {}
    for name, tensor in zip(names, _whole_tensors([state[name] for name in names]), strict=True):
        if keeps:
            whole[name] = tensor
    return {
        uncompiled_key(key): value.cpu() if isinstance(value, torch.Tensor) else value
        for key, value in whole.items()
    }


def _whole_tensors(tensors: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield tensors whole: a collective for many that are sharded by rows, as FSDP2 does."""
    for (group, _), alike in groupby(tensors, lambda tensor: (_rows_group(tensor), tensor.dtype)):
        if group is None:
            yield from (tensor.full_tensor() for tensor in alike)
            continue
        together: list[Any] = []
        for tensor in alike:
            if together and sum(other.nbytes for other in together) + tensor.nbytes > TOGETHER:
                yield from _gathered_rows(together, group)
                together = []
            together.append(tensor)
        yield from _gathered_rows(together, group)


def _rows_group(tensor: Any) -> Any:
    """Return the process group whose ranks have chunks of rows; None for another sharding."""
    from torch.distributed.tensor import Replicate, Shard

    sharded = [i for i, placement in enumerate(tensor.placements) if placement != Replicate()]
    if [tensor.placements[i] for i in sharded] != [Shard(0)]:
        return None
    return tensor.device_mesh.get_group(sharded[0])


def _gathered_rows(tensors: Sequence[Any], group: Any) -> Iterator[torch.Tensor]:
    """Yield tensors of a type whole, gathered in one collective."""
    ranks, chunks = group.size(), []
    for tensor in tensors:
        local = local_part(tensor).detach()
        chunk = local.new_zeros((-(-tensor.shape[0] // ranks), *tensor.shape[1:]))
        chunk[: local.shape[0]] = local  # the last ranks may have fewer rows
        chunks.append(chunk.flatten())
    sent = torch.cat(chunks)
    received = sent.new_empty(ranks, sent.numel())
    torch.distributed.all_gather([*received.unbind()], sent, group)
    sizes = [chunk.numel() for chunk in chunks]
    for tensor, parts in zip(tensors, received.split_with_sizes(sizes, dim=1), strict=True):
        whole = sent.new_empty(tensor.shape)
        whole.view(-1).copy_(parts.flatten()[: whole.numel()])
        yield whole


def load_whole(module: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load whole tensors, present on every rank, into a module with sharded tensors.

    Args:
        module: The module.
        state: The tensors by the keys of distributed checkpoints, see :func:`uncompiled_key`.
    """
    with torch.no_grad():
        for key, tensor in module.state_dict(keep_vars=True).items():
            whole = state.get(key, state.get(uncompiled_key(key)))
            if whole is not None:
                local_part(tensor).copy_(shard_of(whole, tensor))


def largest_of_ranks(value: torch.Tensor, mesh: Any) -> torch.Tensor:
    """Return the largest value over the ranks of a device mesh. Collective."""
    from torch.distributed.tensor import DTensor, Partial

    spread = DTensor.from_local(value, mesh, [Partial("max")] * mesh.ndim, run_check=False)
    whole: torch.Tensor = spread.full_tensor()
    return whole


def rows_of(values: Any, tensor: Any) -> torch.Tensor:
    """Return the values for the local rows of a tensor.

    Args:
        values: A value for each row, or a single value. A plain tensor is returned unchanged, a
            DTensor is redistributed. Collective if the redistribution sums over the ranks.
        tensor: The tensor with the rows.
    """
    if not is_sharded(values):
        whole: torch.Tensor = values
        return whole
    from torch.distributed.tensor import Replicate

    rows = [
        placement if values.ndim and placement.is_shard(0) else Replicate()
        for placement in tensor.placements
    ]
    here: torch.Tensor = values.redistribute(placements=rows)
    return here


def uncompiled_key(key: str) -> str:
    """Return a state dict's key, or a module's name, without the prefix of ``torch.compile``.

    >>> uncompiled_key("net._orig_mod.0.weight"), uncompiled_key("net._orig_mod")
    ('net.0.weight', 'net')
    """
    return f"{key}.".replace("_orig_mod.", "")[:-1]


def reshard(module: torch.nn.Module) -> None:
    """Reshard FSDP2's parameters after a forward pass.

    FSDP2 keeps the parameters of the outermost modules whole for the backward pass. After an
    evaluation no backward pass follows, and the next forward pass would run with the old values,
    even if the shards have changed. Reading the state dict reshards the parameters, also after an
    error in a pass.
    """
    module.state_dict(keep_vars=True)
