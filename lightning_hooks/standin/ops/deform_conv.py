"""Deformable convolutions: each sample of the kernel is moved by an offset, and may be weighted.

The samples are taken by ``grid_sample``, which has the gradients of both the map and the offsets.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lightning_hooks.standin.ops.backend import gradients, torchvision_ops

__all__ = [
    "deform_conv_backward_input",
    "deform_conv_backward_parameters",
    "deform_conv_forward",
    "modulated_deform_conv_backward",
    "modulated_deform_conv_forward",
]


class _Geometry(NamedTuple):
    """As the arguments of ``torch.nn.functional.conv2d``, and groups with offsets of their own."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    deform_groups: int


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    **geometry: Any,
) -> None:
    """Fill in the convolution with moved samples (version 1).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        offset: The moves (y, x) of each element of the kernel, in pixels, of shape
            (n, deform_groups * 2 * elements, rows, columns).
        output: Filled.
        columns: mmcv's memory for intermediates.
        ones: mmcv's memory for intermediates.
        **geometry: kW, kH, dW, dH, padW, padH, dilationW, dilationH, group, deformable_group,
            im2col_step.
    """
    output.copy_(_convolve(input, offset, weight, geometry=_geometry(geometry)))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **geometry: Any,
) -> None:
    """Fill in the gradients of input and offset."""
    convolve = partial(_convolve, weight=weight, geometry=_geometry(geometry))
    found = gradients(convolve, (input, offset), grad_output)
    grad_input.copy_(found[0])
    grad_offset.copy_(found[1])


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    scale: float,
    **geometry: Any,
) -> None:
    """Add the gradient of the kernel."""
    made = _geometry(geometry)
    convolve = partial(_convolve, input, offset, geometry=made)
    shape = torch.zeros_like(grad_weight)
    grad_weight += gradients(convolve, (shape,), grad_output)[0] * scale


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    with_bias: bool,
    **geometry: Any,
) -> None:
    """Fill in the convolution with moved and weighted samples (version 2).

    Args:
        input: Feature maps, of shape (n, c, h, w).
        weight: The kernel, of shape (out, c / groups, kernel height, kernel width).
        bias: Added to each channel of the result.
        ones: mmcv's memory for intermediates.
        offset: As that of :func:`deform_conv_forward`.
        mask: The factor of each element of the kernel, of shape
            (n, deform_groups * elements, rows, columns).
        output: Filled.
        columns: mmcv's memory for intermediates.
        with_bias: Whether the bias counts.
        **geometry: kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
            group, deformable_group.
    """
    found = _convolve(input, offset, weight, mask, geometry=_modulated_geometry(geometry))
    output.copy_(found + bias.view(1, -1, 1, 1) if with_bias else found)


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **geometry: Any,
) -> None:
    """Fill in all gradients."""
    convolve = partial(_convolve, geometry=_modulated_geometry(geometry))
    found = gradients(convolve, (input, offset, weight, mask), grad_output)
    filled = grad_input, grad_offset, grad_weight, grad_mask
    for gradient, target in zip(found, filled, strict=True):
        target.copy_(gradient)
    if with_bias:
        grad_bias.copy_(grad_output.sum((0, 2, 3)))


def _geometry(given: dict[str, Any]) -> _Geometry:
    stride, padding, dilation = (
        (given[f"{name}H"], given[f"{name}W"]) for name in ("d", "pad", "dilation")
    )
    return _Geometry(stride, padding, dilation, given["group"], given["deformable_group"])


def _modulated_geometry(given: dict[str, Any]) -> _Geometry:
    stride, padding, dilation = (
        (given[f"{name}_h"], given[f"{name}_w"]) for name in ("stride", "pad", "dilation")
    )
    return _Geometry(stride, padding, dilation, given["group"], given["deformable_group"])


def _convolve(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    *,
    geometry: _Geometry,
) -> Tensor:
    size, groups = _output_size(input, weight, geometry), geometry.groups
    _check_shapes(input, offset, mask, weight, size, geometry)
    compiled = torchvision_ops()
    if compiled is not None:
        convolved: Tensor = compiled.deform_conv2d(
            input, offset, weight, None, *geometry[:3], mask=mask
        )
        return convolved
    grid = _grid(input, offset, weight, size, geometry)
    maps = input.reshape(len(grid), -1, *input.shape[2:]).to(grid.dtype)
    samples = functional.grid_sample(maps, grid, align_corners=False)
    if mask is not None:
        samples = samples * mask.reshape(len(samples), 1, -1, size[1])
    columns = samples.to(input.dtype).reshape(len(input), groups, -1, size[0] * size[1])
    kernels = weight.reshape(groups, weight.size(0) // groups, -1)
    return torch.matmul(kernels, columns).reshape(len(input), weight.size(0), *size)


def _output_size(input: Tensor, weight: Tensor, geometry: _Geometry) -> tuple[int, int]:
    lengths = zip(input.shape[2:], weight.shape[2:], *geometry[:3], strict=True)
    rows, columns = (
        (length + 2 * pad - (spacing * (extent - 1) + 1)) // step + 1
        for length, extent, step, pad, spacing in lengths
    )
    return rows, columns


def _check_shapes(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    size: tuple[int, int],
    geometry: _Geometry,
) -> None:
    elements = weight.size(2) * weight.size(3) * geometry.deform_groups
    expected = [
        ("input", input, (len(input), weight.size(1) * geometry.groups, *input.shape[2:])),
        ("offset", offset, (len(input), 2 * elements, *size)),
        ("mask", mask, (len(input), elements, *size)),
    ]
    for name, given, shape in expected:
        if given is not None and tuple(given.shape) != shape:
            raise RuntimeError(f"{name} must have the shape {shape}, got {tuple(given.shape)}")


def _grid(
    input: Tensor, offset: Tensor, weight: Tensor, size: tuple[int, int], geometry: _Geometry
) -> Tensor:
    """Return the samples' places for ``grid_sample``: (n * groups, elements * rows, columns, 2)."""
    precise = offset.to(torch.promote_types(offset.dtype, torch.float32))
    moves = precise.reshape(-1, *weight.shape[2:], 2, *size)
    places = []
    for axis, (length, extent) in enumerate(zip(input.shape[2:], weight.shape[2:], strict=True)):
        step, pad, spacing = (values[axis] for values in geometry[:3])
        shape = [1] * 5
        shape[1 + axis], shape[3 + axis] = extent, size[axis]
        start = torch.arange(size[axis], device=offset.device) * step - pad
        element = torch.arange(extent, device=offset.device) * spacing
        # grid_sample's -1 and 1 are the outer edges of the map
        place = (element[:, None] + start).view(shape) + moves[:, :, :, axis]
        places.append((2 * place + 1) / length - 1)
    grid = torch.stack(places[::-1], -1)
    return grid.reshape(len(input) * geometry.deform_groups, -1, size[1], 2)
