"""The operators of StyleGAN: resampling with a filter, and an activation after a bias."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.utils import _pair

__all__ = ["fused_bias_leakyrelu", "upfirdn2d"]


def upfirdn2d(
    input: Tensor,
    kernel: Tensor,
    up: int | tuple[int, int] = 1,
    down: int | tuple[int, int] = 1,
    pad: tuple[int, ...] = (0, 0),
) -> Tensor:
    """Put zeros between the pixels, pad, convolve with a filter, and take every n-th pixel.

    It replaces the function of mmcv-lite's file, which has the arguments of mmcv 2.x.

    Args:
        input: Images, of shape (n, c, h, w).
        kernel: The filter, of shape (height, width).
        up: One pixel becomes so many, along x and y.
        down: So many pixels become one, along x and y.
        pad: Pixels before and after, along both axes; or of x, then of y. Negative ones crop.
    """
    (up_x, up_y), (down_x, down_y) = _pair(up), _pair(down)
    around = pad if len(pad) == 4 else (*pad, *pad)
    batch, channels, height, width = input.shape
    spread = input.new_zeros(batch, channels, height, up_y, width, up_x)
    spread[:, :, :, 0, :, 0] = input
    padded = functional.pad(spread.view(batch, channels, height * up_y, width * up_x), around)
    flipped = torch.flip(kernel, [0, 1])[None, None].to(input.dtype)
    rows, columns = padded.shape[2:]
    filtered = functional.conv2d(padded.reshape(-1, 1, rows, columns), flipped)
    result = filtered[:, :, ::down_y, ::down_x]
    return result.reshape(batch, channels, *result.shape[2:])


def fused_bias_leakyrelu(
    input: Tensor, bias: Tensor, refer: Tensor, act: int, grad: int, alpha: float, scale: float
) -> Tensor:
    """Return ``scale * leaky_relu(input + bias)``, or the gradient of its input.

    Args:
        input: Values of shape (n, c, ...), or their gradients.
        bias: A number for each channel, or empty.
        refer: The result, for a gradient: its sign decides.
        act: 3, the leaky ReLU.
        grad: 0 for the function, 1 for its gradient.
        alpha: The slope of negative values.
        scale: The factor.
    """
    shape = (1, -1, *[1] * (input.dim() - 2))
    values = input + bias.view(shape) if bias.numel() else input
    positive = (refer if grad else values) > 0
    return torch.where(positive, values, values * alpha) * scale
