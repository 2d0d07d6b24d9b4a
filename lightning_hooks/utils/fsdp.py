"""Handle parameters that FSDP has flattened and sliced (Lightning's ``FSDPStrategy``).

They are whole only in the forward pass of the module that FSDP wraps. FSDP2's, of
``ModelParallelStrategy``, are :mod:`lightning_hooks.utils.dtensors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lightning as L
import torch
from torch import nn

__all__ = ["has_slices", "in_forward", "is_flattened", "shares_state", "slices_of", "state_here"]


def is_flattened(model: Any) -> bool:
    """Whether FSDP wraps a model as a whole, as ``FSDPStrategy`` does."""
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(model, FullyShardedDataParallel)


def state_here(module: nn.Module) -> dict[str, Any]:
    """Return a module's state dict, with this rank's slices where FSDP wraps a part of it.

    FSDP's own state dict would gather them, and return a part for the whole before the first step.
    """
    if not any(map(is_flattened, module.modules())):
        return module.state_dict()
    parameters = module.named_parameters(remove_duplicate=False)
    found = {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}
    return {key.replace("_fsdp_wrapped_module.", ""): value for key, value in found.items()}


def has_slices(model: nn.Module, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether some of the parameters are slices, or have no names of their own.

    Args:
        model: The trained model.
        parameters: The parameters of a part of it, or of another module.
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
    """Whether several parameters share an optimizer state, which torch cannot save as one file."""
    return any(
        not handle._use_orig_params and len(handle.flat_param._fqns) > 1
        for handle in _handles(model)
    )


def _handles(model: nn.Module) -> Iterator[Any]:
    wrapped: Iterable[Any] = filter(is_flattened, model.modules())
    return (module._handle for module in wrapped if module._handle is not None)


def _parameters(handle: Any) -> Iterable[Any]:
    return handle.flat_param, *(handle.flat_param._params or ())


def in_forward(trainer: L.Trainer, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function that uses layers of the module, with FSDP's parameters whole.

    All ranks must call it equally often if the module is wrapped; otherwise it is a plain call.

    Args:
        trainer: The Trainer.
        run: The function.
        *args: Its arguments, which FSDP moves and casts.
        **kwargs: Its keyword arguments.
    """
    model: Any = trainer.model
    if not is_flattened(model) or model.training_state.name == "FORWARD_BACKWARD":
        return run(*args, **kwargs)
    module = trainer.lightning_module
    own = vars(module).get("forward")  # a patch, perhaps

    def restore() -> None:
        vars(module).pop("forward", None)
        if own is not None:
            vars(module)["forward"] = own

    def forward(*args: Any, **kwargs: Any) -> Any:
        restore()  # the function may call the module itself
        return run(*args, **kwargs)

    vars(module)["forward"] = forward
    try:
        return model(*args, **kwargs)
    finally:
        restore()
