"""The parts of a synchronized batch normalization between the exchanges of the processes.

Inputs are of shape (n, c, positions); statistics are in single precision.
"""

from __future__ import annotations

from torch import Tensor

__all__ = [
    "sync_bn_backward_data",
    "sync_bn_backward_param",
    "sync_bn_forward_mean",
    "sync_bn_forward_output",
    "sync_bn_forward_var",
]


def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    """Fill in the mean of this process."""
    mean.copy_(input.to(mean.dtype).mean((0, 2)))


def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    """Fill in the mean square difference of this process from the mean of all."""
    var.copy_((input.to(mean.dtype) - mean[:, None]).square().mean((0, 2)))


def sync_bn_forward_output(
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    norm: Tensor,
    std: Tensor,
    output: Tensor,
    eps: float,
    momentum: float | Tensor,
    group_size: int,
) -> None:
    """Fill in the normalized input, without and with weight and bias; update the statistics."""
    std.copy_((var + eps).sqrt())
    norm.copy_((input.to(mean.dtype) - mean[:, None]) / std[:, None])
    output.copy_(norm * weight[:, None] + bias[:, None])
    count = input.size(0) * input.size(2) * group_size
    unbiased = var * count / (count - 1) if count > 1 else var
    running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
    running_var.copy_(momentum * unbiased + (1 - momentum) * running_var)


def sync_bn_backward_param(
    grad_output: Tensor, norm: Tensor, grad_weight: Tensor, grad_bias: Tensor
) -> None:
    """Fill in the gradients of weight and bias of this process."""
    grad_weight.copy_((grad_output * norm).sum((0, 2)))
    grad_bias.copy_(grad_output.to(norm.dtype).sum((0, 2)))


def sync_bn_backward_data(
    grad_output: Tensor,
    weight: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    norm: Tensor,
    std: Tensor,
    grad_input: Tensor,
) -> None:
    """Fill in the gradient of the input."""
    count = grad_output.size(0) * grad_output.size(2)
    common = (grad_weight[:, None] * norm + grad_bias[:, None]) / count
    grad_input.copy_((weight / std)[:, None] * (grad_output - common))
