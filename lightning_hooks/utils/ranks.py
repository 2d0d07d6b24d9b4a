"""Between ranks: collect values on rank 0; have rank 0's tensors, result or error on all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import distributed

__all__ = ["broadcast_", "collected", "from_rank_0", "is_distributed"]

T = TypeVar("T")


def is_distributed() -> bool:
    """Return whether this process is in a process group."""
    return distributed.is_available() and distributed.is_initialized()


def collected(value: T, world_size: int, group: Any = None) -> list[T]:
    """Return the values of all ranks on rank 0, an empty list on other ranks. Collective.

    Args:
        value: The value of this rank.
        world_size: The number of ranks, of a Trainer; with 1 nothing is communicated, even where
            the process is in a group for something else.
        group: The process group of all ranks, for a thread beside the training; by default the
            training's.

    >>> collected(0.5, 1)
    [0.5]
    """
    if world_size == 1:
        return [value]
    is_first = distributed.get_rank() == 0
    values: list[Any] = [None] * world_size if is_first else []
    distributed.gather_object(value, values if is_first else None, group=group)
    return values


def from_rank_0(function: Callable[[], T], world_size: int) -> T:
    """Return the result of a function that rank 0 calls, on all ranks. Collective.

    An error of rank 0 is raised on all ranks: none waits in the next collective for a rank that
    has ended.

    Args:
        function: Called on rank 0.
        world_size: As for :func:`collected`.

    >>> from_rank_0(lambda: 0.5, 1)
    0.5
    """
    if world_size == 1:
        return function()
    told: list[Any] = [None, None]
    own: Exception | None = None
    if distributed.get_rank() == 0:
        try:
            told[0] = function()
        except Exception as error:
            own, told[1] = error, _portable(error)
    distributed.broadcast_object_list(told)
    result, error_of_rank_0 = told
    if error_of_rank_0 is not None:
        raise own or error_of_rank_0
    return result  # type: ignore[no-any-return]


def broadcast_(tensors: Iterable[torch.Tensor], device: torch.device) -> None:
    """Copy rank 0's values to the tensors of the other ranks, one after another. Collective.

    Args:
        tensors: Tensors of the same shapes and types on all ranks, on any device.
        device: The device whose tensors the ranks can send.
    """
    with torch.no_grad():
        for tensor in filter(torch.numel, tensors):
            sent = tensor.detach().to(device).contiguous()
            distributed.broadcast(sent, 0)
            if sent.data_ptr() != tensor.data_ptr():
                tensor.copy_(sent)


def _portable(error: Exception) -> Exception:
    """Return an error that other processes can read: the error itself, or its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
