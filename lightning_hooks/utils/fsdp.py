"""Handle parameters flattened and sliced by FSDP (Lightning's ``FSDPStrategy``).

The parameters are whole only in the forward pass of the wrapped module. For FSDP2
(``ModelParallelStrategy``) see :mod:`lightning_hooks.utils.dtensors`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

__all__ = ["has_slices", "is_flattened", "shares_state", "slices_of", "state_here"]


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


def _handles(model: nn.Module) -> Iterator[Any]:
    wrapped: Iterable[Any] = filter(is_flattened, model.modules())
    return (module._handle for module in wrapped if module._handle is not None)


def _parameters(handle: Any) -> Iterable[Any]:
    return handle.flat_param, *(handle.flat_param._params or ())
