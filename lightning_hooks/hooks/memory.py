"""How much memory a device has needed at most."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["peak_memory"]


def peak_memory(runner: Any) -> int | None:
    """Return the most that torch has allocated on the module's device, in MiB.

    Of several ranks it is the highest, so all must ask. None where there is no CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # the host knows it
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
