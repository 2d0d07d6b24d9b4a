"""A module runs with other weights for a while, and gets its own back whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["WeightSwap"]


class WeightSwap:
    """Puts other values in place of parameters (or buffers), and takes them out again.

    A parameter is pointed at the other tensor: nothing is copied and no memory is needed. Where
    its storage is not its own alone (flattened weights of a recurrent layer, views), the types
    differ, or something remembers addresses, values are copied. The raw values are noted before
    the first parameter is touched, so that after an interrupt at any moment ``take_out`` restores
    them.

    Args:
        parameters: The parameters.
        others: A tensor for each of them; what trains on the swapped module changes it.
        by_copy: Copy the values of all: a CUDA graph reads the addresses that it was made with.
        stays: The others stay on their device, and so do the raw values while they are out;
            with ``by_copy`` only.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
        by_copy: bool = False,
        stays: bool = False,
    ) -> None:
        self.parameters = list(parameters)
        self.others = list(others)
        self.by_copy = by_copy
        self.stays = stays
        self._raw: list[tuple[torch.Tensor, bool]] | None = None
        # which are to be copied: asking every time would cost more than the exchange
        self._copies: list[bool] = []
        self.addresses: list[int] = []
        """Where the parameters' own values were when last looked at: another list if elsewhere."""

    @property
    def is_in(self) -> bool:
        """Whether the other values are in place."""
        return self._raw is not None

    @property
    def raw(self) -> list[torch.Tensor]:
        """The parameters' own values, wherever they are now."""
        if self._raw is not None:
            return [value for value, _ in self._raw]
        return [parameter.detach() for parameter in self.parameters]

    def put_in(self) -> None:
        """Put the other values in place; doing it twice does no harm."""
        if self._raw is not None:
            return
        # Lightning evaluates in inference mode: tensors made there could not be trained later
        with torch.inference_mode(False), torch.no_grad():
            self.follow()
            which = self._which_copy()
            raw = [
                (
                    parameter.detach().to(other.device, copy=True) if copies else parameter.data,
                    copies,
                )
                for parameter, other, copies in zip(
                    self.parameters, self.others, which, strict=True
                )
            ]
            self._raw = raw
            self._set([*zip(self.others, which, strict=True)])

    def take_out(self) -> None:
        """Put the parameters' own values back; doing it twice does no harm."""
        if self._raw is not None:
            with torch.inference_mode(False), torch.no_grad():
                self._set(self._raw)
            self._raw = None

    def _set(self, values: Sequence[tuple[torch.Tensor, bool]]) -> None:
        for parameter, (value, copies) in zip(self.parameters, values, strict=True):
            if copies:
                parameter.copy_(value)
            else:
                parameter.data = value

    def _which_copy(self) -> list[bool]:
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self.addresses:
            self.addresses = addresses
            self._copies = [
                self.by_copy or _needs_copy(parameter, other)
                for parameter, other in zip(self.parameters, self.others, strict=True)
            ]
        return self._copies

    def follow(self) -> None:
        """Move the other tensors to the parameters' devices."""
        if self.stays:
            return
        pairs = zip(self.parameters, self.others, strict=True)
        if any(other.device != parameter.device for parameter, other in pairs):
            self.others = [
                other.to(parameter.device)
                for parameter, other in zip(self.parameters, self.others, strict=True)
            ]


def _needs_copy(parameter: torch.Tensor, other: torch.Tensor) -> bool:
    size = parameter.numel() * parameter.element_size()
    shares = parameter.untyped_storage().nbytes() != size
    # among processes; on other devices it always says so
    shared = parameter.device.type == "cpu" and parameter.is_shared()  # type: ignore[no-untyped-call]
    return shares or shared or parameter.dtype != other.dtype
