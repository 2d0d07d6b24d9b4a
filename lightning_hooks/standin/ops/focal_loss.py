"""Focal losses: the cross entropy with less weight for examples that are already right."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "sigmoid_focal_loss_backward",
    "sigmoid_focal_loss_forward",
    "softmax_focal_loss_backward",
    "softmax_focal_loss_forward",
]

_SMALLEST = torch.finfo(torch.float32).tiny


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill in the losses (n, classes) of independent classes.

    They are ``-alpha (1 - p)^gamma log(p)`` where ``p`` is the right class's sigmoid, and
    ``-(1 - alpha) p^gamma log(1 - p)`` elsewhere. A target that is no class, as the background's,
    is right nowhere. ``weight`` has a factor for each class, or is empty.
    """
    p, right = _sigmoid(input, target)
    losses = torch.where(
        right, -alpha * (1 - p) ** gamma * _log(p), (alpha - 1) * p**gamma * _log(1 - p)
    )
    output.copy_(losses * weight[target][:, None] if weight.numel() else losses)


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill in the derivatives of the losses."""
    p, right = _sigmoid(input, target)
    slopes = torch.where(
        right,
        -alpha * (1 - p) ** gamma * (1 - p - gamma * p * _log(p)),
        (alpha - 1) * p**gamma * (gamma * (1 - p) * _log(1 - p) - p),
    )
    grad_input.copy_(slopes * weight[target][:, None] if weight.numel() else slopes)


def softmax_focal_loss_forward(
    softmax: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill in the losses (n,) of exclusive classes, ``-alpha (1 - p)^gamma log(p)``.

    Rows with a negative target count 0.
    """
    p, factor = _of_target(softmax, target, weight)
    output.copy_(-alpha * (1 - p) ** gamma * _log(p) * factor)


def softmax_focal_loss_backward(
    softmax: Tensor,
    target: Tensor,
    weight: Tensor,
    buff: Tensor,
    grad_input: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Fill in the derivatives of the losses by the scores before the softmax."""
    p, factor = _of_target(softmax, target, weight)
    rest = (1 - p).clamp(min=_SMALLEST)
    buff.copy_(alpha * (gamma * rest ** (gamma - 1) * p * _log(p) - (1 - p) ** gamma) * factor)
    right = target[:, None] == torch.arange(softmax.size(1), device=softmax.device)
    grad_input.copy_(buff[:, None] * (right.to(softmax) - softmax))


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=_SMALLEST).log()


def _sigmoid(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities, and where each row's target is."""
    classes = torch.arange(input.size(1), device=input.device)
    return input.sigmoid(), target[:, None] == classes


def _of_target(softmax: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probability of each row's target, and a factor: 0 for a negative target."""
    chosen, counts = target.clamp(min=0), (target >= 0).to(softmax)
    factor = counts * weight[chosen] if weight.numel() else counts
    return softmax.gather(1, chosen[:, None]).squeeze(1), factor
