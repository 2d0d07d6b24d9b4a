"""Handle parameters flattened and sliced by FSDP (Lightning's ``FSDPStrategy``).

The parameters are whole only in the forward pass of the wrapped module. For FSDP2
(``ModelParallelStrategy``) see :mod:`lightning_hooks.utils.dtensors`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

__all__ = [
    "flat_parameters",
    "flattened",
    "has_slices",
    "is_flattened",
    "load_whole",
    "local_slice",
    "prepare",
    "reshard",
    "shares_state",
    "slices_of",
    "state_here",
    "whole_state",
]


def is_flattened(model: Any) -> bool:
    """Whether FSDP wraps a model as a whole, as ``FSDPStrategy`` does."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # a slow import, made by who wraps a model
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)


def state_here(module: nn.Module) -> dict[str, Any]:
    """Return a module's state dict, with the local slices of parameters wrapped by FSDP.

    FSDP's own state dict would gather the slices, and before the first step return a part only.
    """
    if not any(map(is_flattened, module.modules())):
        return module.state_dict()
    parameters = module.named_parameters(remove_duplicate=False)
    named = {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}
    return {key.replace("_fsdp_wrapped_module.", ""): value for key, value in named.items()}


def has_slices(model: nn.Module, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether some of the parameters are slices, or parts of a flat parameter without names.

    Args:
        model: The trained model.
        parameters: The parameters of a part of the model, or of another module.
    """
    cut = [h for h in _handles(model) if h.uses_sharded_strategy or not h._use_orig_params]
    mine = {id(parameter) for handle in cut for parameter in _parameters(handle)}
    return any(id(parameter) in mine for parameter in parameters)


def slices_of(model: nn.Module) -> dict[int, Any]:
    """Return the process group of each sliced parameter, by the parameter's id."""
    return {
        id(parameter): handle.process_group
        for handle in _handles(model)
        if handle.uses_sharded_strategy
        for parameter in _parameters(handle)
    }


def shares_state(model: nn.Module) -> bool:
    """Whether parameters share an optimizer state; torch cannot save a shared state in a file."""
    return any(
        not handle._use_orig_params and len(handle.flat_param._fqns) > 1
        for handle in _handles(model)
    )


# -- slices as memory ------------------------------------------------------------------------


def flat_parameters(model: nn.Module) -> list[Any]:
    """Return FSDP's flat parameters, in which the parameters of a wrapped module are joined."""
    return [handle.flat_param for handle in _handles(model)]


def flattened(model: nn.Module) -> set[int]:
    """Return the ids of the flat parameters, and of the parameters in them."""
    return {id(parameter) for handle in _handles(model) for parameter in _parameters(handle)}


def prepare(model: nn.Module) -> None:
    """Have FSDP allocate the slices, as before a first forward pass. Collective."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    for root in FullyShardedDataParallel.fsdp_modules(model, root_only=True):
        with FullyShardedDataParallel.summon_full_params(root, recurse=False, writeback=False):
            pass


def local_slice(parameter: Any) -> torch.Tensor:
    """Return a flat parameter's memory on this rank; any other tensor is returned itself."""
    local: torch.Tensor = getattr(parameter, "_local_shard", parameter)
    return local


def reshard(model: nn.Module) -> None:
    """Free whole parameters that an evaluation has left.

    FSDP keeps the parameters of a root, and with ``SHARD_GRAD_OP`` all, whole for a backward pass.
    After an evaluation no backward pass follows, and the next forward pass would run with the old
    values, even if the slices have changed.
    """
    for handle in _handles(model):
        is_ready = hasattr(handle.flat_param, "_local_shard")
        if is_ready and handle.uses_sharded_strategy and not handle.needs_unshard():
            handle.reshard(True)


def whole_state(model: nn.Module, everywhere: bool = False) -> dict[str, Any]:
    """Return the state dict of a wrapped model with whole parameters. Collective.

    Args:
        model: The model.
        everywhere: Whether all ranks get the values; otherwise rank 0 alone, on the CPU, and the
            others an empty dict.
    """
    reshard(model)
    with _whole(model, everywhere):
        state = model.state_dict()
    if not everywhere and torch.distributed.get_rank() > 0:
        return {}  # else a part: the buffers
    return {key: _cloned(value) for key, value in state.items()}


def load_whole(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load whole tensors, present on every rank, into a wrapped model. Collective."""
    reshard(model)
    with _whole(model, everywhere=True):
        model.load_state_dict(state, strict=False)


def _whole(model: nn.Module, everywhere: bool) -> AbstractContextManager[Any]:
    from torch.distributed.fsdp import (
        FullStateDictConfig,
        FullyShardedDataParallel,
        StateDictType,
    )

    kind = StateDictType.FULL_STATE_DICT
    config = FullStateDictConfig(offload_to_cpu=not everywhere, rank0_only=not everywhere)
    return FullyShardedDataParallel.state_dict_type(model, kind, config)


def _cloned(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _handles(model: nn.Module) -> Iterator[Any]:
    wrapped: Iterable[Any] = filter(is_flattened, model.modules())
    return (module._handle for module in wrapped if module._handle is not None)


def _parameters(handle: Any) -> Iterable[Any]:
    return handle.flat_param, *(handle.flat_param._params or ())
