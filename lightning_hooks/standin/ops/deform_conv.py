"""Deformable convolutions: each sample of the kernel is moved by an offset, and may be weighted.

The samples are taken by ``grid_sample``, which has the gradients of both the map and the offsets.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.utils import _pair

from lightning_hooks.standin.ops.backend import torchvision_ops

__all__ = ["deform_conv2d", "modulated_deform_conv2d"]

Size: TypeAlias = int | tuple[int, ...]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deform_groups: int = 1,
    bias: bool = False,
    im2col_step: int = 32,
) -> Tensor:
    """Convolve with moved samples (version 1).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        offset: The moves (y, x) of each element of the kernel, in pixels, of shape
            (n, deform_groups * 2 * elements, rows, columns).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        stride: As that of ``torch.nn.functional.conv2d``.
        padding: As that of ``torch.nn.functional.conv2d``.
        dilation: As that of ``torch.nn.functional.conv2d``.
        groups: Parts of the channels that are convolved apart.
        deform_groups: Parts of the channels with moves of their own.
        bias: Must be False.
        im2col_step: mmcv treats so many maps at once; all others must be a multiple of it.
    """
    _check_input(input)
    assert bias is False, "deform_conv2d has no bias: bias must be False"
    step = min(im2col_step, input.size(0))
    assert step == 0 or input.size(0) % step == 0, "batch size must be divisible by im2col_step"
    geometry = _pair(stride), _pair(padding), _pair(dilation)
    return _convolve(input, offset, None, weight, None, geometry, groups, deform_groups)


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """Convolve with moved and weighted samples (version 2).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        offset: As that of :func:`deform_conv2d`.
        mask: The factor of each element of the kernel, of shape
            (n, deform_groups * elements, rows, columns).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        bias: Added to each channel of the result.
        stride: As that of ``torch.nn.functional.conv2d``.
        padding: As that of ``torch.nn.functional.conv2d``.
        dilation: As that of ``torch.nn.functional.conv2d``.
        groups: Parts of the channels that are convolved apart.
        deform_groups: Parts of the channels with moves of their own.
    """
    _check_input(input)
    geometry = _pair(stride), _pair(padding), _pair(dilation)
    return _convolve(input, offset, mask, weight, bias, geometry, groups, deform_groups)


def _check_input(input: Tensor) -> None:
    if input.dim() != 4:
        raise ValueError(f"Expected 4D tensor as input, got {input.dim()}D tensor instead.")


_Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _convolve(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: _Geometry,
    groups: int,
    deform_groups: int,
) -> Tensor:
    # under autocast the layer that makes the offsets decides about the precision
    dtype, kernel = offset.dtype, tuple(weight.shape[2:])
    input, weight = input.to(dtype), weight.to(dtype)
    mask, bias = None if mask is None else mask.to(dtype), None if bias is None else bias.to(dtype)
    size = _output_size(input, kernel, geometry)
    _check_shapes(input, offset, mask, weight, size, groups, deform_groups)
    compiled = torchvision_ops()
    if compiled is not None:
        stride, padding, dilation = geometry
        convolved: Tensor = compiled.deform_conv2d(
            input, offset, weight, bias, stride, padding, dilation, mask
        )
        return convolved
    grid = _grid(input, offset, kernel, size, geometry, deform_groups)
    maps = input.reshape(-1, input.size(1) // deform_groups, *input.shape[2:]).to(grid.dtype)
    samples = functional.grid_sample(maps, grid, align_corners=False)
    if mask is not None:
        samples = samples * mask.reshape(len(samples), 1, -1, size[1])
    columns = samples.to(dtype).reshape(len(input), groups, -1, size[0] * size[1])
    kernels = weight.reshape(groups, weight.size(0) // groups, -1)
    result = torch.matmul(kernels, columns).reshape(len(input), weight.size(0), *size)
    return result if bias is None else result + bias.view(1, -1, 1, 1)


def _output_size(input: Tensor, kernel: tuple[int, ...], geometry: _Geometry) -> tuple[int, int]:
    found = tuple(
        (length + 2 * pad - (spacing * (extent - 1) + 1)) // step + 1
        for length, extent, step, pad, spacing in zip(
            input.shape[2:], kernel, *geometry, strict=True
        )
    )
    if min(found) <= 0:
        raise ValueError(f"convolution input is too small (output would be {found[0]}x{found[1]})")
    return found[0], found[1]


def _check_shapes(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    size: tuple[int, int],
    groups: int,
    deform_groups: int,
) -> None:
    elements = weight.size(2) * weight.size(3) * deform_groups
    expected = [
        ("input", input, (len(input), weight.size(1) * groups, *input.shape[2:])),
        ("offset", offset, (len(input), 2 * elements, *size)),
        ("mask", mask, (len(input), elements, *size)),
    ]
    for name, given, shape in expected:
        if given is not None and tuple(given.shape) != shape:
            raise RuntimeError(f"{name} must have the shape {shape}, got {tuple(given.shape)}")


def _grid(
    input: Tensor,
    offset: Tensor,
    kernel: tuple[int, ...],
    size: tuple[int, int],
    geometry: _Geometry,
    deform_groups: int,
) -> Tensor:
    """Return the samples' places for ``grid_sample``: (n * groups, elements * rows, columns, 2)."""
    precise = offset.to(torch.promote_types(offset.dtype, torch.float32))
    moves = precise.reshape(-1, kernel[0], kernel[1], 2, *size)
    places = []
    for axis, (length, extent) in enumerate(zip(input.shape[2:], kernel, strict=True)):
        step, pad, spacing = (values[axis] for values in geometry)
        shape = [1] * 5
        shape[1 + axis], shape[3 + axis] = extent, size[axis]
        start = torch.arange(size[axis], device=offset.device) * step - pad
        element = torch.arange(extent, device=offset.device) * spacing
        # grid_sample's -1 and 1 are the outer edges of the map
        place = (element[:, None] + start).view(shape) + moves[:, :, :, axis]
        places.append((2 * place + 1) / length - 1)
    grid = torch.stack(places[::-1], -1)
    return grid.reshape(len(input) * deform_groups, -1, size[1], 2)
