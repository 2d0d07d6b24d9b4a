"""Focal losses: the cross entropy with less weight for examples that are already right."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["SigmoidFocalLoss", "SoftmaxFocalLoss", "sigmoid_focal_loss", "softmax_focal_loss"]

_SMALLEST = torch.finfo(torch.float32).tiny
_REDUCTIONS = ("none", "mean", "sum")


def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the focal loss of independent classes, ``-alpha (1 - p)^gamma log(p)`` where right.

    Args:
        input: Scores before the sigmoid, of shape (n, classes).
        target: The class of each row; any other number, as that of the background, is no class.
        gamma: The exponent.
        alpha: The weight of positive entries; negative ones have 1 - alpha.
        weight: Factors by class, of shape (classes,).
        reduction: ``"none"``, ``"sum"``, or ``"mean"``: the sum by the number of rows.
    """
    _check(input, target, weight, reduction)
    losses: Tensor = _Sigmoid.apply(input, target, float(gamma), float(alpha), weight)  # type: ignore[no-untyped-call]
    return _reduced(losses, reduction, len(input))


def softmax_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the focal loss of exclusive classes, ``-alpha (1 - p)^gamma log(p)`` of the right one.

    Args:
        input: Scores before the softmax, of shape (n, classes).
        target: The class of each row; rows with a negative one do not count.
        gamma: The exponent.
        alpha: A factor.
        weight: Factors by class, of shape (classes,).
        reduction: ``"none"``, ``"sum"``, or ``"mean"``: the sum by the number of rows.
    """
    _check(input, target, weight, reduction)
    losses: Tensor = _Softmax.apply(input, target, float(gamma), float(alpha), weight)  # type: ignore[no-untyped-call]
    return _reduced(losses, reduction, len(input))


def _check(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> None:
    assert target.dtype == torch.long, f"target must be of dtype long, got {target.dtype}"
    shapes = f"input {tuple(input.shape)}, target {tuple(target.shape)}"
    assert input.dim() == 2, f"input must be (n, classes): {shapes}"
    assert target.dim() == 1, f"target must be (n,): {shapes}"
    assert input.size(0) == target.size(0), f"as many targets as rows: {shapes}"
    if weight is not None:
        assert weight.dim() == 1, f"weight must be (classes,), got {tuple(weight.shape)}"
        assert input.size(1) == weight.size(0), f"{input.size(1)} classes, {len(weight)} weights"
    assert reduction in _REDUCTIONS, f"reduction must be one of {_REDUCTIONS}, got {reduction!r}"


def _reduced(losses: Tensor, reduction: str, rows: int) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() / rows if reduction == "mean" else losses.sum()


# The gradients are written out: they do not vanish where a probability is too small for its
# logarithm, and a large table of scores is kept in memory once.


class _Sigmoid(Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, target: Tensor, gamma: float, alpha: float, weight: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(input, target, weight)
        ctx.gamma, ctx.alpha = gamma, alpha
        p, right = _probabilities(input, target)
        log_p, log_rest = p.clamp(min=_SMALLEST).log(), (1 - p).clamp(min=_SMALLEST).log()
        losses = torch.where(
            right, -alpha * (1 - p) ** gamma * log_p, (alpha - 1) * p**gamma * log_rest
        )
        return losses if weight is None else losses * weight[target][:, None]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, target, weight = ctx.saved_tensors
        gamma, alpha = ctx.gamma, ctx.alpha
        p, right = _probabilities(input, target)
        log_p, log_rest = p.clamp(min=_SMALLEST).log(), (1 - p).clamp(min=_SMALLEST).log()
        slopes = torch.where(
            right,
            -alpha * (1 - p) ** gamma * (1 - p - gamma * p * log_p),
            (alpha - 1) * p**gamma * (gamma * (1 - p) * log_rest - p),
        )
        slopes = slopes if weight is None else slopes * weight[target][:, None]
        return grad * slopes, None, None, None, None


def _probabilities(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    classes = torch.arange(input.size(1), device=input.device)
    return input.sigmoid(), target[:, None] == classes


class _Softmax(Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, target: Tensor, gamma: float, alpha: float, weight: Tensor | None
    ) -> Tensor:
        every, counts = input.softmax(1), target >= 0
        ctx.save_for_backward(every, target, weight)
        ctx.gamma, ctx.alpha = gamma, alpha
        p = _of_target(every, target)
        losses = torch.where(counts, -alpha * (1 - p) ** gamma * p.clamp(min=_SMALLEST).log(), 0.0)
        return losses if weight is None else losses * weight[target.clamp(min=0)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        every, target, weight = ctx.saved_tensors
        gamma, alpha, counts = ctx.gamma, ctx.alpha, target >= 0
        p = _of_target(every, target)
        log_p, rest = p.clamp(min=_SMALLEST).log(), (1 - p).clamp(min=_SMALLEST)
        slopes = alpha * (gamma * rest ** (gamma - 1) * p * log_p - (1 - p) ** gamma)
        slopes = torch.where(counts, slopes, 0.0)
        slopes = slopes if weight is None else slopes * weight[target.clamp(min=0)]
        right = target[:, None] == torch.arange(every.size(1), device=every.device)
        return (grad * slopes)[:, None] * (right.to(every) - every), None, None, None, None


def _of_target(every: Tensor, target: Tensor) -> Tensor:
    return every.gather(1, target.clamp(min=0)[:, None]).squeeze(1)


class _FocalLoss(nn.Module):
    """The arguments that both focal losses have."""

    weight: Tensor | None

    def __init__(
        self, gamma: float, alpha: float, weight: Tensor | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.alpha = alpha
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(gamma={self.gamma}, alpha={self.alpha}, reduction={self.reduction})"


class SigmoidFocalLoss(_FocalLoss):
    """The focal loss of independent classes: :func:`sigmoid_focal_loss`.

    Args:
        gamma: The exponent.
        alpha: The weight of positive entries; negative ones have 1 - alpha.
        weight: Factors by class.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores (n, classes) before the sigmoid."""
        arguments = self.gamma, self.alpha, self.weight, self.reduction
        return sigmoid_focal_loss(input, target, *arguments)


class SoftmaxFocalLoss(_FocalLoss):
    """The focal loss of exclusive classes: :func:`softmax_focal_loss`.

    Args:
        gamma: The exponent.
        alpha: A factor.
        weight: Factors by class.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores (n, classes) before the softmax."""
        arguments = self.gamma, self.alpha, self.weight, self.reduction
        return softmax_focal_loss(input, target, *arguments)
