"""The average of a module's parameters over the steps of its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch

from lightning_hooks.hooks.weight_swap import WeightSwap

__all__ = ["ModuleAverage"]


class ModuleAverage:
    """A second set of values for a module's parameters.

    Parameters of floating-point or complex type are averaged, in their own type and on their
    device. Buffers are not: the average goes with the module's own.

    Args:
        module: The module; its ``state_dict`` names the parameters.
        start: Values to start from, by key; the parameters' own for those it does not have.
    """

    def __init__(self, module: L.LightningModule, start: Mapping[str, Any] | None = None) -> None:
        self.module = module
        parameters = _averaged(module)
        values = {id(p): p.detach() for p in parameters}
        for key, parameter in module.state_dict(keep_vars=True).items():
            saved = (start or {}).get(key)
            if saved is not None and id(parameter) in values and saved.shape == parameter.shape:
                values[id(parameter)] = saved.to(parameter)
        self.swap = WeightSwap(parameters, [values[id(p)].clone() for p in parameters])

    def is_of(self, module: L.LightningModule) -> bool:
        """Whether this is the average of the module as it is now."""
        now, then = _averaged(module), self.swap.parameters
        return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))

    @torch.no_grad()
    def update(self, weight: float) -> None:
        """``average += weight * (parameter - average)``, for all at once."""
        torch._foreach_lerp_(self.swap.others, self.swap.parameters, weight)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with the average in it; the tensors are the live ones."""
        return self._with(self.swap.others)

    def raw_state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with its own weights, also while they are swapped."""
        return self._with(self.swap.raw)

    def _with(self, values: list[torch.Tensor]) -> dict[str, Any]:
        by_parameter = {id(p): v for p, v in zip(self.swap.parameters, values, strict=True)}
        return {
            key: by_parameter.get(id(value), _detached(value))
            for key, value in self.module.state_dict(keep_vars=True).items()
        }


def _averaged(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in module.parameters() if p.is_floating_point() or p.is_complex()]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
