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

from lightning_hooks.utils import dtensors

__all__ = [
    "flat_parameters",
    "flattened",
    "has_slices",
    "is_flattened",
    "load",
    "local_slice",
    "prepare",
    "reshard",
    "sharded_state",
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


def sharded_state(model: Any) -> dict[str, Any]:
    """Return a copy of the state dict of a wrapped model, sharded by rows as DTensors. Collective.

    Args:
        model: The model.
    """
    reshard(model)
    with _sharded(model):
        state = model.state_dict()
    return {key: _as_dtensor(value, model.compute_device) for key, value in state.items()}


def load(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load sharded tensors, or whole ones present on every rank, into a wrapped model. Collective.

    Args:
        model: The model.
        state: Values of :func:`sharded_state` or :func:`whole_state`; the model keeps its own
            values for missing keys.
    """
    reshard(model)
    if not dtensors.any_sharded(state.values()):
        with _whole(model, everywhere=True):
            model.load_state_dict(state, strict=False)
        return
    with _sharded(model):
        own = model.state_dict()
        for key, value in own.items():
            if key in state and isinstance(value, torch.Tensor):
                rows = dtensors.local_part(state[key])
                _local_rows(value, rows.device).copy_(rows)
        model.load_state_dict(own, strict=False)


def _whole(model: nn.Module, everywhere: bool) -> AbstractContextManager[Any]:
    from torch.distributed import fsdp

    config = fsdp.FullStateDictConfig(offload_to_cpu=not everywhere, rank0_only=not everywhere)
    kind = fsdp.StateDictType.FULL_STATE_DICT
    return fsdp.FullyShardedDataParallel.state_dict_type(model, kind, config)


def _sharded(model: nn.Module) -> AbstractContextManager[Any]:
    from torch.distributed import fsdp

    config = fsdp.ShardedStateDictConfig(offload_to_cpu=False)  # NCCL gathers on a GPU alone
    kind = fsdp.StateDictType.SHARDED_STATE_DICT
    return fsdp.FullyShardedDataParallel.state_dict_type(model, kind, config)


def _is_sharded_tensor(value: Any) -> bool:
    """Whether a value is a ShardedTensor, which FSDP has without a device mesh."""
    return hasattr(value, "local_shards")


def _local_rows(value: Any, device: torch.device) -> torch.Tensor:
    """Return this rank's rows of a value; without rows, an empty tensor on the given device."""
    if not _is_sharded_tensor(value):
        return dtensors.local_part(value)
    shards = value.local_shards()
    if not shards:
        return torch.empty((0, *value.shape[1:]), dtype=value.dtype, device=device)
    rows: torch.Tensor = shards[0].tensor
    return rows


def _as_dtensor(value: Any, device: torch.device) -> Any:
    """Return a ShardedTensor, of which each rank has a chunk of rows, as a DTensor."""
    if not _is_sharded_tensor(value):
        return _cloned(value)
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    rows = _local_rows(value, device)
    mesh = DeviceMesh.from_group(value._process_group, rows.device.type)
    stride = torch.empty(value.shape, device="meta").stride()
    return DTensor.from_local(
        rows, mesh, [Shard(0)], run_check=False, shape=value.shape, stride=stride
    )


def _cloned(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _handles(model: nn.Module) -> Iterator[Any]:
    wrapped: Iterable[Any] = filter(is_flattened, model.modules())
    return (module._handle for module in wrapped if module._handle is not None)


def _parameters(handle: Any) -> Iterable[Any]:
    return handle.flat_param, *(handle.flat_param._params or ())
