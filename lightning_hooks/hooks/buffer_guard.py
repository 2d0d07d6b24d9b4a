"""The buffers of a module from before a step, to be put back without asking the device."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

__all__ = ["BufferGuard"]


class BufferGuard:
    """Keeps a module's buffers (BatchNorm's statistics) and puts them back if a flag says so.

    The forward of a bad batch spoils them, before anyone can know. All buffers of a type go
    into one tensor: a few kernels, whatever their number.

    Args:
        module: The module; buffers that are replaced by others of the same shape are found.
    """

    def __init__(self, module: nn.Module) -> None:
        self._places = [
            (part._buffers, name)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None and not nn.parameter.is_lazy(buffer) and not buffer.is_sparse
        ]
        self._kept: list[tuple[list[torch.Tensor], torch.Tensor]] = []

    @torch.no_grad()
    def keep(self) -> None:
        """Copy the buffers as they are."""
        groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = defaultdict(list)
        for buffers, name in self._places:
            buffer = buffers.get(name)
            if buffer is not None and buffer.numel():
                groups[buffer.device, buffer.dtype].append(buffer)
        self._kept = [(group, _flat(group)) for group in groups.values()]

    @torch.no_grad()
    def put_back(self, flag: torch.Tensor | None = None) -> None:
        """Put the kept values back: where the flag is not 0, or always.

        Args:
            flag: A 0-d tensor.
        """
        for buffers, kept in self._kept:
            value = kept
            if flag is not None:
                value = torch.where(flag.to(kept.device).bool(), kept, _flat(buffers))
            pieces = torch.split(value, [buffer.numel() for buffer in buffers])
            shaped = [p.view(b.shape) for p, b in zip(pieces, buffers, strict=True)]
            torch._foreach_copy_(buffers, shaped)


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
