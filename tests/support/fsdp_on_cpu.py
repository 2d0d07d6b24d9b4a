"""FSDP's strategy without a GPU, which Lightning and torch otherwise refuse."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param, _optim_utils

__all__ = ["FSDPOnCPU"]

# to_cpu() copies the gathered parameters to the host and frees the source memory. Parameters on the
# host are not copied, so a state dict would be read from freed memory
_flat_param.FlatParamHandle.to_cpu = lambda self: contextlib.nullcontext()  # type: ignore[method-assign]

# an optimizer's states are gathered one after another in the same memory and copied to the host. On
# the CPU nothing is copied, so all states would have the values of the last state
_unflatten = _optim_utils._unflatten_orig_param_states


def _unflatten_copies(
    fsdp_param_info: Any, output_states: dict[str, Any], state_name: str, *args: Any
) -> None:
    _unflatten(fsdp_param_info, output_states, state_name, *args)
    for states in output_states.values():
        if isinstance(states[state_name], torch.Tensor):
            states[state_name] = states[state_name].clone()


_optim_utils._unflatten_orig_param_states = _unflatten_copies


class FSDPOnCPU(FSDPStrategy):
    """Wraps the module as Lightning does, but for the CPU."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(process_group_backend="gloo", **kwargs)

    def _setup_model(self, model: nn.Module) -> nn.Module:
        if any(isinstance(part, FullyShardedDataParallel) for part in model.modules()):
            return model
        return FullyShardedDataParallel(
            model,
            cpu_offload=self.cpu_offload,
            mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy,
            device_id=torch.device("cpu"),
            **self.kwargs,
        )
