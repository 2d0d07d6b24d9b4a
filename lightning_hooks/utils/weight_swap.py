"""``WeightSwap``: other values in place of a module's parameters, for a while."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["WeightSwap"]


class WeightSwap:
    """Puts other values in place of parameters (or buffers), and restores the raw values.

    A parameter is pointed at the other tensor, without a copy or more memory. Values are copied
    where a parameter shares storage (flattened weights of a recurrent layer, views) or the types
    differ. The raw values are noted before the first parameter is touched: ``swap_out`` restores
    the module after an interrupt at any moment.

    Args:
        parameters: The parameters.
        replacement: A tensor for each parameter; training the swapped module changes the tensors.
        by_copy: Copy all values: a CUDA graph reads fixed addresses.
        keeps_device: The replacement stays on its device, and during a swap so do the raw values;
            with ``by_copy`` only.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        replacement: Sequence[torch.Tensor],
        by_copy: bool = False,
        keeps_device: bool = False,
    ) -> None:
        self.parameters = list(parameters)
        self.replacement = list(replacement)
        self.by_copy = by_copy
        self.keeps_device = keeps_device
        self._raw: list[torch.Tensor] | None = None
        # for each parameter, whether to copy: this test costs more than the swap
        self._copies: list[bool] = []
        self._addresses: list[int] = []  # of the parameters, when tested

    @property
    def is_in(self) -> bool:
        """Whether the replacement is in place."""
        return self._raw is not None

    @property
    def raw(self) -> list[torch.Tensor]:
        """The parameters' own values, also during a swap."""
        if self._raw is not None:
            return self._raw
        return [parameter.detach() for parameter in self.parameters]

    def swap_in(self) -> bool:
        """Put the replacement in place, unless they already are.

        Returns:
            Whether the parameters' own memory has moved since the last swap.
        """
        if self._raw is not None:
            return False
        # Lightning evaluates in inference mode: tensors made there could not be trained later
        with torch.inference_mode(False), torch.no_grad():
            self.follow()
            addresses = [parameter.data_ptr() for parameter in self.parameters]
            has_moved = addresses != self._addresses
            if has_moved:
                self._copies = [
                    self.by_copy or _needs_copy(parameter, other)
                    for parameter, other in zip(self.parameters, self.replacement, strict=True)
                ]
                self._addresses = addresses
            self._raw = [
                parameter.detach().to(other.device, copy=True) if copies else parameter.data
                for parameter, other, copies in zip(
                    self.parameters, self.replacement, self._copies, strict=True
                )
            ]
            self._set(self.replacement)
        return has_moved

    def separate(self) -> None:
        """Go on with a copy of the replacement: the swapped parameters keep the tensors."""
        pairs = zip(self.replacement, self._copies, strict=True)
        self.replacement = [other if copies else other.clone() for other, copies in pairs]

    def swap_out(self) -> None:
        """Restore the parameters' own values, if the replacement is in place."""
        if self._raw is not None:
            with torch.inference_mode(False), torch.no_grad():
                self._set(self._raw)
            self._raw = None

    def _set(self, values: Sequence[torch.Tensor]) -> None:
        for parameter, value, copies in zip(self.parameters, values, self._copies, strict=True):
            if copies:
                parameter.copy_(value)
            else:
                parameter.data = value.to(parameter.device)

    def follow(self) -> None:
        """Move the replacement to the parameters' devices."""
        if not self.keeps_device:
            pairs = zip(self.replacement, self.parameters, strict=True)
            self.replacement = [other.to(parameter.device) for other, parameter in pairs]


def _needs_copy(parameter: torch.Tensor, other: torch.Tensor) -> bool:
    size = parameter.numel() * parameter.element_size()
    shares = parameter.untyped_storage().nbytes() != size
    # among processes; on other devices is_shared() is always True
    shared = parameter.device.type == "cpu" and parameter.is_shared()  # type: ignore[no-untyped-call]
    return shares or shared or parameter.dtype != other.dtype
