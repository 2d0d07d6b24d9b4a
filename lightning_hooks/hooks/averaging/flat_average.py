"""``FlatAverage``: an average of the slices of FSDP's flat parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import lightning as L
import torch

from lightning_hooks.engine.hook_states import Identity
from lightning_hooks.engine.lightning_api.precision import writes_directories
from lightning_hooks.hooks.averaging.module_average import ModuleAverage, averaged
from lightning_hooks.hooks.averaging.saved_average import SavedAverage
from lightning_hooks.utils import fsdp

__all__ = ["FlatAverage"]

ReadState: TypeAlias = Callable[[Any], dict[str, Any]]
"""A function of the wrapped model that returns a state dict, whole or sharded."""


class FlatAverage(ModuleAverage):
    """A second set of values for a module whose parameters FSDP (``FSDPStrategy``) has flattened.

    Each rank averages its slices; nothing is gathered in a step. State dicts have the parameters'
    own types. They are whole: all ranks gather them, and rank 0 gets the values. For a checkpoint
    directory they are sharded.

    Args:
        module: The module, in a fit with the strategy.
        arguments: The other arguments of a :class:`ModuleAverage`.
    """

    def __init__(self, module: L.LightningModule, *arguments: Any) -> None:
        self._model: Any = module.trainer.strategy.model
        super().__init__(module, *arguments)

    def _find_parameters(self) -> list[Any]:
        fsdp.prepare(self._model)
        self._reshard()
        joined = fsdp.flattened(self._model)
        others = [p for p in averaged(self.module) if id(p) not in joined]
        return [p for p in fsdp.flat_parameters(self._model) if p.requires_grad] + others

    def _frozen(self, *_: Any) -> list[Any]:
        return []  # a flat parameter has all from the beginning

    def _saved(self) -> set[int]:
        return {
            id(buffer)
            for owner in self.module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if name not in owner._non_persistent_buffers_set
        }

    def _is_spread(self, parameters: Sequence[Any]) -> bool:
        return True

    def _local(self, tensor: Any) -> torch.Tensor:
        return fsdp.local_slice(tensor)

    def _reshard(self) -> None:
        fsdp.reshard(self._model)

    def is_of(self, module: L.LightningModule) -> bool:
        """Whether the module has all averaged parameters."""
        model: Any = module.trainer.strategy.model
        parameters = [*fsdp.flat_parameters(model), *module.parameters()]
        return {*map(id, parameters)}.issuperset(map(id, self._tensors[: self._first_buffer]))

    def new_parameters(self) -> list[str]:
        """Return no name: a flat parameter has all parameters from the beginning."""
        return []

    @torch.no_grad()
    def _loaded(
        self, start: Mapping[str, Any], types: Mapping[int, torch.dtype]
    ) -> dict[int, torch.Tensor]:
        slices = [self._local(tensor) for tensor in self._tensors]
        held = [*slices, *self._model.buffers()]
        own = [value.clone() for value in held]
        fsdp.load(self._model, start)
        self._reshard()
        values = {
            id(tensor): local.to(types[id(tensor)], copy=True)
            for tensor, local in zip(self._tensors, slices, strict=True)
        }
        _copy(held, own)
        return values

    def _state_dict_with(
        self,
        values: Sequence[torch.Tensor],
        exact: bool = False,
        read: ReadState = fsdp.whole_state,
    ) -> dict[str, Any]:
        with torch.inference_mode(False), torch.no_grad():
            self._reshard()
            slices = [self._local(tensor) for tensor in self._tensors]
            own = [value.clone() for value in slices]
            _copy(slices, values)
            try:
                return read(self._model)
            finally:
                self._reshard()
                _copy(slices, own)

    def everywhere(self) -> dict[str, Any]:
        """Return the state dict with the average's values, on every rank."""
        read = partial(fsdp.whole_state, everywhere=True)
        return self._state_dict_with(self.swap.replacement, read=read)

    def live(self) -> dict[str, torch.Tensor]:
        """Return the average's live tensors, of this rank, by their places."""
        return {str(place): value for place, value in enumerate(self.swap.replacement)}

    def saved(self, of: Identity | None = None, is_validated: bool = False) -> SavedAverage:
        """Return the average for a checkpoint of a hook: sharded, or whole on rank 0."""
        in_parts = writes_directories(self.module.trainer.strategy)
        read = fsdp.sharded_state if in_parts else fsdp.whole_state
        values = self.swap.replacement if self.has_begun else self.swap.raw
        state = self._state_dict_with(values, read=read)
        raw = self._state_dict_with(self.swap.raw, read=read) if is_validated else {}
        return SavedAverage(of, state, self.steps, self.updates, is_validated, raw=raw)


def _copy(into: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for own, value in zip(into, values, strict=True):
        own.copy_(value)
