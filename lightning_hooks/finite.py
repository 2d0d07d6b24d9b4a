"""Are there NaN or infinite values? Asked on the device: nothing here waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["any_non_finite", "finite_weights", "over_ranks", "scalar"]


def scalar(loss: torch.Tensor) -> torch.Tensor:
    """Return a loss as a plain 0-d tensor; of several values their mean."""
    loss = loss.detach().as_subclass(torch.Tensor)  # ours would go through Python in every call
    return loss.reshape(()) if loss.numel() == 1 else loss.mean()


@torch.no_grad()
def any_non_finite(tensors: Iterable[torch.Tensor], numbers: Sequence[Any] = ()) -> torch.Tensor:
    """Return 1.0 if a value is NaN or infinite, else 0.0: a 0-d tensor on the tensors' device.

    Of each tensor the largest magnitude is looked at, which NaN and infinity reach and which
    cannot overflow, as a sum of squares would.

    Args:
        tensors: Tensors of any shape; sparse ones and shards are taken as what they hold here.
        numbers: 0-d tensors, looked at too.

    >>> any_non_finite([torch.tensor([1e30, 2.0])])
    tensor(0.)
    >>> any_non_finite([torch.ones(3), torch.tensor([0.0, -torch.inf])])
    tensor(1.)
    """
    held = [_held(t) for t in tensors]
    held = [t for t in held if t.numel() and (t.is_floating_point() or t.is_complex())]
    found = [*torch._foreach_norm(held, float("inf"))] if held else []
    found += [scalar(number) for number in numbers]
    if not found:
        return torch.zeros(())
    device = found[0].device
    largest = torch.stack([one.to(device) for one in found])
    return largest.isfinite().all().logical_not().float()


def finite_weights(module: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """Return the trained parameters that are finite now: some are infinite on purpose (masks)."""
    found = [p for p in module.parameters() if p.requires_grad]
    found = [p for p in found if not torch.nn.parameter.is_lazy(p)]
    if not found:
        return ()
    flags = [any_non_finite([parameter]).to(found[0].device) for parameter in found]
    bad = torch.stack(flags).tolist()
    return tuple(p for p, is_bad in zip(found, bad, strict=True) if not is_bad)


def over_ranks(flag: torch.Tensor) -> torch.Tensor:
    """Return the largest value of a flag over all ranks, changing it in place."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return flag


def _held(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor is in this process, dense."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # a DTensor
        tensor = tensor.to_local()
    return tensor._values() if tensor.is_sparse else tensor
