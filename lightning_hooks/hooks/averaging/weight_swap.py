"""``WeightSwap``: swap a module's weights for others, and back, also after an error."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["WeightSwap"]


class WeightSwap:
    """Puts other values in place of parameters (or buffers), and restores them.

    A parameter is pointed at the other tensor: nothing is copied and no memory is needed. Values
    are copied where a parameter's storage is not its own alone (flattened weights of a recurrent
    layer, views), the types differ, or something remembers addresses. The raw values are noted
    before the first parameter is touched: ``swap_out`` restores them after an interrupt at any
    moment.

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
        self._raw: list[torch.Tensor] | None = None
        # for each parameter whether it is copied: this test costs more than the exchange
        self._copies: list[bool] = []
        self._addresses: list[int] = []  # of the parameters, at that test

    @property
    def is_in(self) -> bool:
        """Whether the other values are in place."""
        return self._raw is not None

    @property
    def raw(self) -> list[torch.Tensor]:
        """The parameters' own values, also while they are swapped."""
        if self._raw is not None:
            return self._raw
        return [parameter.detach() for parameter in self.parameters]

    def swap_in(self) -> bool:
        """Put the other values in place; a second call does nothing.

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
                    for parameter, other in zip(self.parameters, self.others, strict=True)
                ]
                self._addresses = addresses
            self._raw = [
                parameter.detach().to(other.device, copy=True) if copies else parameter.data
                for parameter, other, copies in zip(
                    self.parameters, self.others, self._copies, strict=True
                )
            ]
            self._set(self.others)
        return has_moved

    def swap_out(self) -> None:
        """Restore the parameters' own values; a second call does nothing."""
        if self._raw is not None:
            with torch.inference_mode(False), torch.no_grad():
                self._set(self._raw)
            self._raw = None

    def _set(self, values: Sequence[torch.Tensor]) -> None:
        for parameter, value, copies in zip(self.parameters, values, self._copies, strict=True):
            if copies:
                parameter.copy_(value)
            else:
                parameter.data = value

    def follow(self) -> None:
        """Move the other tensors to the parameters' devices."""
        if not self.stays:
            pairs = zip(self.others, self.parameters, strict=True)
            self.others = [other.to(parameter.device) for other, parameter in pairs]


def _needs_copy(parameter: torch.Tensor, other: torch.Tensor) -> bool:
    size = parameter.numel() * parameter.element_size()
    shares = parameter.untyped_storage().nbytes() != size
    # among processes; on other devices is_shared() is always True
    shared = parameter.device.type == "cpu" and parameter.is_shared()  # type: ignore[no-untyped-call]
    return shares or shared or parameter.dtype != other.dtype
