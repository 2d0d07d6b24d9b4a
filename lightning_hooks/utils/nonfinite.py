"""Search tensors for NaN and infinite values on the device, without a synchronization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import torch

from lightning_hooks.utils import foreach
from lightning_hooks.utils.dtensors import local_part
from lightning_hooks.utils.ranks import is_distributed

__all__ = ["any_non_finite", "finite_weights", "gradients_non_finite", "over_ranks", "scalar"]

PLAIN, DENSE = {torch.Tensor, torch.nn.Parameter}, {torch.strided}
layout_of = attrgetter("layout")


def scalar(loss: torch.Tensor) -> torch.Tensor:
    """Return a loss as a plain 0-d tensor, the mean of several values."""
    loss = loss.as_subclass(torch.Tensor)  # StrategyLoss would go through Python in every call
    return loss if loss.ndim == 0 else loss.mean()


@torch.no_grad()
def any_non_finite(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return 1.0 if a value is NaN or infinite, else 0.0: a 0-d tensor on the tensors' device.

    The function reads the largest magnitude of each tensor. Unlike a sum of squares, the largest
    magnitude cannot overflow.

    Args:
        tensors: Tensors of any shape and type; of shards the local part is searched, of sparse
            tensors the stored values.

    >>> any_non_finite([torch.tensor([1e30, 2.0])])
    tensor(0.)
    >>> any_non_finite([torch.ones(3), torch.tensor([0.0, -torch.inf])])
    tensor(1.)
    """
    held = [tensor for group in _groups(tensors) for tensor in group if tensor.numel()]
    if not held:
        return torch.zeros(())
    norms = foreach.norm(held, float("inf"))
    largest = torch.stack([norm.to(norms[0].device) for norm in norms])
    return largest.isfinite().all().logical_not().float()


@torch.no_grad()
def gradients_non_finite(
    gradients: Iterable[torch.Tensor], losses: Sequence[torch.Tensor] = ()
) -> torch.Tensor:
    """Return the result of :func:`any_non_finite` faster, by the kernel of torch's gradient scaler.

    The kernel multiplies the gradients by 1, in place.

    Args:
        gradients: Tensors of any shape without a graph.
        losses: 0-d tensors, also searched; not changed.

    >>> gradients_non_finite([torch.tensor([1e30, 2.0])], [torch.tensor(torch.nan)])
    tensor(1.)
    """
    flags = []
    for group in _groups([*gradients, *[loss.clone() for loss in losses]]):
        device = group[0].device
        if device.type in ("cpu", "cuda"):
            # the kernel takes float32 alone, also where the default type is another
            flag = torch.zeros((), dtype=torch.float32, device=device)
            scale = torch.ones_like(flag)
            torch._amp_foreach_non_finite_check_and_unscale_(group, flag, scale)
        else:
            flag = any_non_finite(group)
        flags.append(flag)
    if len(flags) < 2:
        return flags[0] if flags else torch.zeros(())
    return torch.stack([flag.to(flags[0].device) for flag in flags]).amax()


def finite_weights(module: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """Return the trainable parameters with finite values only; masks are infinite on purpose."""
    with_grad = [
        parameter
        for parameter in module.parameters()
        if parameter.requires_grad and not torch.nn.parameter.is_lazy(parameter)
    ]
    if not any_non_finite(with_grad):  # nearly always, and many times faster than one by one
        return tuple(with_grad)
    flags = [any_non_finite([parameter]).to(with_grad[0].device) for parameter in with_grad]
    bad = torch.stack(flags).tolist()
    return tuple(p for p, is_bad in zip(with_grad, bad, strict=True) if not is_bad)


def over_ranks(flag: torch.Tensor) -> torch.Tensor:
    """Return the largest value of a flag over all ranks; the flag changes in place. Collective."""
    if is_distributed():
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return flag


def _groups(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return the local parts of the tensors, dense and real, in groups of a device and type."""
    held = [*tensors]
    if not (PLAIN.issuperset(map(type, held)) and DENSE.issuperset(map(layout_of, held))):
        held = [local_part(tensor) for tensor in held]
        held = [tensor._values() if tensor.is_sparse else tensor for tensor in held]
    groups = foreach.by_type(held)
    real = [
        [*map(torch.view_as_real, group)] if group[0].is_complex() else group for group in groups
    ]
    return [group for group in real if group[0].is_floating_point()]
