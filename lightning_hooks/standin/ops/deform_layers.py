"""Layers of deformable convolutions: with given offsets, or with a convolution that makes them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.utils import _pair, _single

from lightning_hooks.standin.cnn.registries import CONV_LAYERS
from lightning_hooks.standin.ops.deform_conv import Size, deform_conv2d, modulated_deform_conv2d
from lightning_hooks.standin.utils.logging import print_log
from lightning_hooks.standin.utils.misc import deprecated_api_warning

__all__ = [
    "DeformConv2d",
    "DeformConv2dPack",
    "ModulatedDeformConv2d",
    "ModulatedDeformConv2dPack",
]


class _DeformableLayer(nn.Module):
    """The attributes that these layers share with ``torch.nn.Conv2d``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        self.deform_groups = deform_groups
        self.transposed = False
        self.output_padding = _single(0)
        shape = out_channels, in_channels // groups, *self.kernel_size
        self.weight = nn.Parameter(torch.empty(shape))

    def _make_offsets_with(self, numbers: int) -> nn.Conv2d:
        """Return a convolution to so many numbers for each element of the kernel."""
        return nn.Conv2d(
            self.in_channels,
            self.deform_groups * numbers * self.kernel_size[0] * self.kernel_size[1],
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            bias=True,
        )

    @property
    def _geometry(self) -> tuple[Size, Size, Size, int, int]:
        return self.stride, self.padding, self.dilation, self.groups, self.deform_groups


class DeformConv2d(_DeformableLayer):
    """A deformable convolution (version 1) whose offsets are given.

    Args:
        in_channels: As in ``torch.nn.Conv2d``.
        out_channels: As in ``torch.nn.Conv2d``.
        kernel_size: As in ``torch.nn.Conv2d``.
        stride: As in ``torch.nn.Conv2d``.
        padding: As in ``torch.nn.Conv2d``.
        dilation: As in ``torch.nn.Conv2d``.
        groups: As in ``torch.nn.Conv2d``.
        deform_groups: Parts of the channels with offsets of their own.
        bias: Must be False.
        im2col_step: The number of maps must be a multiple of it, if it is larger.
    """

    @deprecated_api_warning({"deformable_groups": "deform_groups"}, cls_name="DeformConv2d")
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = False,
        im2col_step: int = 32,
    ) -> None:
        assert not bias, f"bias={bias} is not supported in DeformConv2d."
        for channels in (in_channels, out_channels):
            assert channels % groups == 0, f"{channels} channels cannot be divided by {groups}"
        geometry = kernel_size, stride, padding, dilation, groups, deform_groups
        super().__init__(in_channels, out_channels, *geometry)
        self.im2col_step = im2col_step
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the kernel for ReLU."""
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        """Convolve maps (n, c, h, w) with offsets, as :func:`deform_conv2d` has them."""
        missing = [max(k - n, 0) for k, n in zip(self.kernel_size, x.shape[2:], strict=True)]
        if not any(missing):
            return self._convolve(x, offset)
        # a map smaller than the kernel
        around = (0, missing[1], 0, missing[0])
        out = self._convolve(functional.pad(x, around), functional.pad(offset, around))
        return out[:, :, : out.size(2) - missing[0], : out.size(3) - missing[1]].contiguous()

    def _convolve(self, x: Tensor, offset: Tensor) -> Tensor:
        return deform_conv2d(x, offset, self.weight, *self._geometry, False, self.im2col_step)

    def __repr__(self) -> str:
        names = "in_channels out_channels kernel_size stride padding dilation groups deform_groups"
        values = "".join(f"{name}={getattr(self, name)},\n" for name in names.split())
        return f"{type(self).__name__}({values}bias=False)"


class ModulatedDeformConv2d(_DeformableLayer):
    """A deformable convolution (version 2) whose offsets and factors are given.

    Args:
        in_channels: As in ``torch.nn.Conv2d``.
        out_channels: As in ``torch.nn.Conv2d``.
        kernel_size: As in ``torch.nn.Conv2d``.
        stride: As in ``torch.nn.Conv2d``.
        padding: As in ``torch.nn.Conv2d``.
        dilation: As in ``torch.nn.Conv2d``.
        groups: As in ``torch.nn.Conv2d``.
        deform_groups: Parts of the channels with offsets of their own.
        bias: As in ``torch.nn.Conv2d``.
    """

    bias: nn.Parameter | None

    @deprecated_api_warning(
        {"deformable_groups": "deform_groups"}, cls_name="ModulatedDeformConv2d"
    )
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool | str = True,
    ) -> None:
        geometry = kernel_size, stride, padding, dilation, groups, deform_groups
        super().__init__(in_channels, out_channels, *geometry)
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels)) if bias else None)
        self.init_weights()

    def init_weights(self) -> None:
        """Initialize the kernel uniformly, the bias with 0."""
        bound = 1.0 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        """Convolve maps with offsets and factors, as :func:`modulated_deform_conv2d` has them."""
        return modulated_deform_conv2d(x, offset, mask, self.weight, self.bias, *self._geometry)


class _Pack:
    """Read checkpoints of the first version, whose keys of ``conv_offset`` were others."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *args: Any,
    ) -> None:
        version = local_metadata.get("version")
        if version is None or version < 2:
            for name in ("weight", "bias"):
                new, old = f"{prefix}conv_offset.{name}", f"{prefix[:-1]}_offset.{name}"
                if new not in state_dict and old in state_dict:
                    state_dict[new] = state_dict.pop(old)
        elif version > 1:
            kind = self._title
            print_log(f"{kind} {prefix.rstrip('.')} is upgraded to version 2.", logger="root")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)  # type: ignore[misc]

    _title = ""


@CONV_LAYERS.register_module("DCN")
class DeformConv2dPack(_Pack, DeformConv2d):
    """A deformable convolution (version 1) that makes its offsets: a Conv2d's replacement.

    Args:
        *args: As those of :class:`DeformConv2d`.
        **kwargs: As those of :class:`DeformConv2d`.
    """

    _version = 2
    _title = "DeformConv2dPack"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conv_offset = self._make_offsets_with(2)
        self.init_offset()

    def init_offset(self) -> None:
        """Begin without offsets."""
        nn.init.zeros_(self.conv_offset.weight)
        nn.init.zeros_(self.conv_offset.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Convolve maps (n, c, h, w)."""
        return self._convolve(x, self.conv_offset(x))


@CONV_LAYERS.register_module("DCNv2")
class ModulatedDeformConv2dPack(_Pack, ModulatedDeformConv2d):
    """A deformable convolution (version 2) that makes its offsets and factors.

    Args:
        *args: As those of :class:`ModulatedDeformConv2d`.
        **kwargs: As those of :class:`ModulatedDeformConv2d`.
    """

    _version = 2
    _title = "ModulatedDeformConvPack"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conv_offset = self._make_offsets_with(3)
        self.init_weights()

    def init_weights(self) -> None:
        """Initialize the kernel; begin without offsets, and with factors of 1/2."""
        super().init_weights()
        if hasattr(self, "conv_offset"):
            nn.init.zeros_(self.conv_offset.weight)
            nn.init.zeros_(self.conv_offset.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Convolve maps (n, c, h, w)."""
        first, second, mask = torch.chunk(self.conv_offset(x), 3, dim=1)
        offset = torch.cat((first, second), dim=1)
        return ModulatedDeformConv2d.forward(self, x, offset, torch.sigmoid(mask))
