"""A module runs with other weights for a while, and gets its own back whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["WeightSwap"]


class WeightSwap:
    """Puts other values in place of parameters, and takes them out again.

    A parameter is pointed at the other tensor: nothing is copied and no memory is needed. Where
    its storage is not its own alone (flattened weights of a recurrent layer, views) or the types
    differ, values are copied. The raw values are noted before the first parameter is touched, so
    that after an interrupt at any moment ``take_out`` restores them.

    Args:
        parameters: The parameters.
        others: A tensor for each of them; what trains on the swapped module changes it.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], others: Sequence[torch.Tensor]
    ) -> None:
        self.parameters = list(parameters)
        self.others = list(others)
        self._raw: list[tuple[torch.Tensor, bool]] | None = None

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
            raw = []
            for parameter, other in zip(self.parameters, self.others, strict=True):
                copies = _needs_copy(parameter, other)
                raw.append((parameter.detach().clone() if copies else parameter.data, copies))
            self._raw = raw
            self._set([*zip(self.others, (copies for _, copies in raw), strict=True)])

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

    def follow(self) -> None:
        """Move the other tensors to the parameters' devices."""
        for index, parameter in enumerate(self.parameters):
            if self.others[index].device != parameter.device:
                self.others[index] = self.others[index].to(parameter.device)


def _needs_copy(parameter: torch.nn.Parameter, other: torch.Tensor) -> bool:
    size = parameter.numel() * parameter.element_size()
    shares = parameter.untyped_storage().nbytes() != size
    # among processes; on other devices it always says so
    shared = parameter.device.type == "cpu" and parameter.is_shared()  # type: ignore[no-untyped-call]
    return shares or shared or parameter.dtype != other.dtype
