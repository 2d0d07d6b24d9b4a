"""``ModuleAverage``: the tensors of an average of a module's weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import lightning as L
import torch
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm

from lightning_hooks.engine.hook_states import Identity
from lightning_hooks.engine.lightning_api.model_state import trained
from lightning_hooks.hooks.averaging.nan_safe_update import NanSafeUpdate, wide
from lightning_hooks.hooks.averaging.saved_average import SavedAverage
from lightning_hooks.utils import dtensors, foreach
from lightning_hooks.utils.weight_swap import WeightSwap

__all__ = ["ModuleAverage", "Votes", "averaged"]


Votes: TypeAlias = Mapping[torch.device, torch.Tensor]
"""1.0 for each device of the values where a step is bad, else 0.0."""


class ModuleAverage:
    """A second set of values for a module's parameters and, if wanted, buffers.

    Parameters of floating-point or complex type are averaged on their device, in float32 where
    their own type is lower (a step of 0.0002 is lost in bfloat16). Integers are never averaged.
    Frozen parameters are the module's own until they are trained; a parameter frozen later is
    averaged on, also in a resumed run. The values of buffers in the state dict:

    ================  ==========================================================================
    ``buffers``       values in the average
    ================  ==========================================================================
    ``"ignore"``      the module's own
    ``"average"``     averaged, if of floating-point or complex type; the vectors of spectral norm
                      are the averaged weight's, by a power iteration after an update, and masks
                      of pruning are the module's own
    ``"copy"``        copied from the module at every update
    ``"statistics"``  of BatchNorm layers set by :meth:`estimate_statistics`, else the module's own
    ================  ==========================================================================

    Each rank averages its part of sharded parameters (DTensor). The parts are swapped by copying,
    and all ranks together leave out an update to NaN.

    An average on another device takes no memory beside the model. Every update first copies the
    weights to the device, and the host waits; swaps copy, too.

    Args:
        module: The module; its ``state_dict`` names the weights.
        saved: Values and counts to start from; the module's own values for missing keys, and 0
            without values.
        buffers: See above.
        by_copy: Swap by copying, see
            :class:`~lightning_hooks.utils.weight_swap.WeightSwap`.
        check_all: Search for NaN everywhere, see
            :class:`~lightning_hooks.hooks.averaging.nan_safe_update.NanSafeUpdate`.
        device: The device of the average; None for the devices of the parameters.
        before: The average so far, whose parameters have an average still.
    """

    has_begun = True
    """Whether averaging has begun; before, the average is the model itself."""

    steps: int = 0
    """Optimizer steps since averaging began."""

    updates: int = 0
    """Updates since averaging began."""

    is_estimated = False
    """Whether the statistics of BatchNorm layers are of the present average."""

    is_left = False
    """Whether the average was left in the module after a fit."""

    beside: ModuleAverage | None = None
    """The average that may be in the module's place, where it is another one."""

    def __init__(
        self,
        module: L.LightningModule,
        saved: SavedAverage | None = None,
        buffers: str = "ignore",
        by_copy: bool = False,
        check_all: bool = False,
        device: str | None = None,
        before: ModuleAverage | None = None,
    ) -> None:
        self.module = module
        start = {} if saved is None else {**saved.tensors, **saved.exact}
        if saved is not None and start:
            self.steps, self.updates = saved.steps or 0, saved.updates
        self._check_all = check_all
        known = [] if before is None else before._tensors[: before._first_buffer]
        parameters = self._find_parameters()
        parameters += self._frozen({*map(id, known)}, start, {*map(id, parameters)})
        self._first_buffer: int = len(parameters)
        # the tensors that follow the parameters
        self._slots = _buffers(module, buffers, self._saved())
        self._copies = buffers == "copy"
        self._estimates_only = buffers == "statistics"
        self.is_estimated = saved is not None and saved.is_estimated
        self._shards = self._is_spread(parameters)
        self._tensors: list[Any] = [
            *parameters,
            *(getattr(owner, name) for owner, name in self._slots),
        ]
        places = {id(tensor): place for place, tensor in enumerate(self._tensors)}
        self._spectral_norms = [
            (*(places[id(tensor)] for tensor in tensors), dim)
            for *tensors, dim in _spectral_norms(module)
            if places.keys() >= {*map(id, tensors)} and not self._shards
        ]
        local = [self._local(tensor) for tensor in self._tensors]
        widened = self._tensors if buffers == "average" else parameters
        types = {id(t): t.dtype for t in self._tensors} | {id(t): wide(t.dtype) for t in widened}
        values = {id(t): part.detach() for t, part in zip(self._tensors, local, strict=True)}
        values |= self._loaded(start, types) if start else {}
        copies = [values[id(t)].to(device, types[id(t)], copy=True) for t in self._tensors]
        by_copy = by_copy or self._shards or device is not None or _is_compiled_for_cuda(module)
        keeps_device = device is not None
        self.swap = WeightSwap(local, copies, by_copy, keeps_device)
        self._staged = [torch.empty_like(copy) for copy in copies] if keeps_device else []
        self._updates: dict[torch.device, NanSafeUpdate] = {}
        self._left_out: dict[torch.device, torch.Tensor] = {}

    # -- the module's tensors --------------------------------------------------------------

    def _find_parameters(self) -> list[Any]:
        """Return the parameters to average."""
        self._reshard()
        return averaged(self.module)

    def _frozen(
        self, known: Collection[int], start: Mapping[str, Any], trained: set[int]
    ) -> list[Any]:
        """Return the frozen parameters that have an average: here, or another value in a file."""
        found = {}
        for key, tensor in self.module.state_dict(keep_vars=True).items():
            value = start.get(key, start.get(dtensors.uncompiled_key(key)))
            is_other = value is not None and _is_other(value, tensor)
            if id(tensor) not in trained and (id(tensor) in known or is_other):
                found[id(tensor)] = tensor
        return [each for each in found.values() if isinstance(each, torch.nn.Parameter)]

    def _saved(self) -> set[int]:
        """Return the ids of the tensors in the state dict."""
        return {id(value) for value in self.module.state_dict(keep_vars=True).values()}

    def _is_spread(self, parameters: Sequence[Any]) -> bool:
        return dtensors.any_sharded(parameters)

    def _local(self, tensor: Any) -> torch.Tensor:
        """Return the memory of a tensor on this rank."""
        return dtensors.local_part(tensor)

    def _reshard(self) -> None:
        """Free whole parameters that a forward pass has left."""
        dtensors.reshard(self.module)

    def _loaded(
        self, start: Mapping[str, Any], types: Mapping[int, torch.dtype]
    ) -> dict[int, torch.Tensor]:
        """Return this rank's parts of saved values, by the id of the tensor."""
        values = {}
        for key, tensor in self.module.state_dict(keep_vars=True).items():
            value = start.get(key, start.get(dtensors.uncompiled_key(key)))
            if value is not None and id(tensor) in types and value.shape == tensor.shape:
                values[id(tensor)] = dtensors.shard_of(value, tensor, types[id(tensor)])
        return values

    def is_of(self, module: L.LightningModule) -> bool:
        """Whether the module has all averaged parameters."""
        dtensors.reshard(module)
        present = {*map(id, module.parameters())}
        return present.issuperset(map(id, self._tensors[: self._first_buffer]))

    def new_parameters(self) -> list[str]:
        """Return the names of parameters added or unfrozen since the average was made."""
        self._reshard()
        known = {*map(id, self._tensors)}
        named = trained(self.module)
        return [name for name, value in named if _is_number(value) and id(value) not in known]

    # -- training --------------------------------------------------------------------------

    def begin(self, *, with_buffers: bool = True) -> None:
        """Start the average with the model's present weights, and buffers."""
        self.has_begun, self.is_estimated = True, False
        self.steps = self.updates = 0
        self.follow()
        with torch.no_grad():
            end = None if with_buffers else self._first_buffer
            if self.swap.replacement[:end]:  # torch refuses an empty list
                foreach.copy_(self.swap.replacement[:end], self.swap.parameters[:end])

    def take_buffers(self) -> None:
        """Copy the module's present buffers to the average."""
        self._look_up()
        self._copy_buffers()

    @torch.no_grad()
    def update(self, weight: float, votes: Votes | None = None) -> Votes:
        """``average += weight * (parameter - average)``, for all tensors at once, without NaN.

        Args:
            weight: The weight of the parameters.
            votes: What the ranks have decided on NaN for another average of the same step.

        Returns:
            What the ranks have decided, for each device; empty where each rank decides alone.
        """
        self.is_estimated = False
        if (self._slots and not self._estimates_only) or self._shards:
            self._look_up()
        votes = votes or {}
        verdicts = {
            device: update(weight, votes.get(device))
            for device, update in self._staged_updates().items()
        }
        for *places, dim in self._spectral_norms:
            kernel, left, right = (self.swap.replacement[place] for place in places)
            matrix = kernel.movedim(dim, 0).flatten(1)
            right.copy_(normalize(matrix.T @ left, dim=0))
            left.copy_(normalize(matrix @ right, dim=0))
        self.updates += 1
        return verdicts if self._shards else {}

    def _staged_updates(self) -> dict[torch.device, NanSafeUpdate]:
        """Copy the values to the average's own device, if any; return the updates."""
        if self._staged:
            with torch.no_grad():
                foreach.copy_(self._staged, self.swap.parameters)
        return self._updates or self._prepare()

    def _prepare(self) -> dict[torch.device, NanSafeUpdate]:
        pairs = [*zip(self.swap.replacement, self._staged or self.swap.parameters, strict=True)]
        first = self._first_buffer
        self._updates = {}
        for device in dict.fromkeys(value.device for _, value in pairs):
            parameters = [pair for pair in pairs[:first] if pair[1].device == device]
            buffers = [] if self._estimates_only else pairs[first:]
            buffers = [pair for pair in buffers if pair[1].device == device]
            left_out = self._left_out.setdefault(
                device, torch.zeros((), dtype=torch.float32, device=device)
            )
            together = self.swap.parameters[0].device if self._shards else None
            self._updates[device] = NanSafeUpdate(
                parameters, left_out, self._check_all, buffers, self._copies, together
            )
        return self._updates

    def _look_up(self, reshard: bool = False) -> None:
        """Look up the tensors again: a module may replace a buffer, FSDP the memory of a shard."""
        if reshard and self._shards:
            self._reshard()
        if not self.swap.is_in:
            for index, (owner, name) in enumerate(self._slots, self._first_buffer):
                buffer = getattr(owner, name)
                if buffer is not None:
                    self._tensors[index] = buffer
        parameters = self.swap.parameters
        for index in range(0 if self._shards else self._first_buffer, len(parameters)):
            current = self._local(self._tensors[index])
            if current is not parameters[index]:
                parameters[index] = current
                self._updates = {}

    # -- use -------------------------------------------------------------------------------

    def follow(self) -> None:
        """Move the average to the module's devices."""
        self._look_up()
        self.swap.follow()
        self._updates = {}  # they hold the old tensors

    def swap_in(self) -> None:
        """Put the average in place of the module's weights, if averaging has begun."""
        if self.has_begun and not self.swap.is_in:
            self._look_up(reshard=True)
            if self.swap.swap_in():
                self._updates = {}  # they read the old memory

    def swap_out(self) -> None:
        """Restore the module's weights, if the average is in place and was not left there."""
        if self.swap.is_in and not self.is_left:
            self._look_up(reshard=True)
            self.swap.swap_out()

    def leave(self) -> None:
        """Leave the average in the module, whose weights are the user's from then on."""
        self.swap_in()
        if self.swap.is_in:
            self.swap.separate()
            self.is_left = True

    @property
    def was_changed(self) -> bool:
        """Whether the average was left in the module, and the module has other weights now."""
        if not self.is_left:
            return False
        pairs = [*zip(self.swap.parameters, self.swap.replacement, strict=True)]
        left = pairs[: self._first_buffer]  # a forward alone changes buffers
        same = (torch.equal(own, value.to(own.device, own.dtype)) for own, value in left)
        return not (self.is_of(self.module) and all(same))

    def take_back(self) -> bool:
        """Restore the raw weights after :meth:`leave`; return False if the module was changed."""
        if self.was_changed:
            return False
        self.is_left = False
        self.swap_out()
        return True

    def estimate_statistics(self, estimate: Callable[[], object]) -> None:
        """Estimate the statistics of BatchNorm layers, if the average has changed.

        Args:
            estimate: Writes statistics to the layers of the module, while the average is in place.
        """
        if not self.has_begun or self.is_estimated:
            return
        was_in = self.swap.is_in
        self.swap_out()
        if self._estimates_only:  # skipped layers (in eval mode) keep the module's
            self._look_up()
            self._copy_buffers()
        self.swap_in()
        try:
            estimate()
            self._copy_buffers()
            self.is_estimated = True
        finally:
            if not was_in:
                self.swap_out()

    def _copy_buffers(self) -> None:
        """Copy the module's buffers to the average."""
        first = self._first_buffer
        copies, buffers = self.swap.replacement[first:], self.swap.parameters[first:]
        with torch.inference_mode(False), torch.no_grad():
            if buffers:  # torch refuses an empty list
                foreach.copy_(copies, buffers)

    def repair(self) -> int:
        """Return how many updates were left out because of NaN since the last call.

        This is the only read of the device. After left out updates, NaN and infinite numbers of the
        average are replaced by the model's numbers.
        """
        if self.swap.is_in:
            return 0
        count = max((int(number) for number in self._left_out.values()), default=0)
        if count:
            for number in self._left_out.values():
                number.zero_()
            for update in self._staged_updates().values():
                update.repair()
        return count

    def state_dict(self, exact: bool = False) -> dict[str, Any]:
        """Return the module's state dict with the average's live tensors.

        Args:
            exact: Whether averages of a higher type than their parameters keep this type; otherwise
                the state dict has copies in the parameters' types.
        """
        if not self.has_begun:
            return self.raw_state_dict()
        self._look_up()
        return self._state_dict_with(self.swap.replacement, exact)

    def live(self) -> dict[str, torch.Tensor]:
        """Return the average's live tensors, of this rank, by the keys of the state dict."""
        state = self.state_dict(exact=True)
        return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}

    def saved(self, of: Identity | None = None, is_validated: bool = False) -> SavedAverage:
        """Return the average for a checkpoint of a hook, or for another average: live tensors."""
        state, exact = self.state_dict(), self.state_dict(exact=True)
        higher = {
            key: value
            for key, value in exact.items()
            if isinstance(value, torch.Tensor) and value.dtype != state[key].dtype
        }
        raw = self.raw_state_dict() if is_validated else {}
        return SavedAverage(of, state, self.steps, self.updates, is_validated, higher, raw)

    def raw_state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with the raw weights, also during a swap."""
        self._look_up()
        return self._state_dict_with(self.swap.raw)

    def _state_dict_with(self, values: list[torch.Tensor], exact: bool = False) -> dict[str, Any]:
        by_id = dict(zip(map(id, self._tensors), values, strict=True))
        state = {}
        for key, tensor in self.module.state_dict(keep_vars=True).items():
            if id(tensor) in by_id:
                value = by_id[id(tensor)]
                value = value if exact else value.to(tensor.dtype)
                state[key] = dtensors.sharded_like(tensor, value)
            else:
                tensor = tensor if self.beside is None else self.beside.raw_of(tensor)
                state[key] = tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
        return state

    def raw_of(self, value: Any) -> Any:
        """Return the raw value of a tensor of the module, also during a swap."""
        places = [place for place, tensor in enumerate(self._tensors) if tensor is value]
        return self.swap.raw[places[0]] if places and self.swap.is_in else value


def averaged(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of a module that are averaged."""
    return [parameter for _, parameter in trained(module) if _is_number(parameter)]


def _is_other(value: torch.Tensor, parameter: Any) -> bool:
    """Whether the average of a whole parameter is another value than the parameter."""
    if not isinstance(parameter, torch.nn.Parameter) or not _is_number(parameter):
        return False
    if dtensors.any_sharded([parameter]) or value.shape != parameter.shape:
        return False
    return not torch.equal(value.to(parameter.device, parameter.dtype), parameter)


def _is_number(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _buffers(
    module: torch.nn.Module, which: str, saved: Collection[int]
) -> list[tuple[torch.nn.Module, str]]:
    """Return owner and name of the averaged buffers in the state dict, each tensor once."""
    slots: dict[int, tuple[torch.nn.Module, str]] = {}
    for owner in module.modules() if which != "ignore" else ():
        if which == "statistics" and not isinstance(owner, _BatchNorm):
            continue
        masks = {f"{hook._tensor_name}_mask" for hook in _hooks_of(owner, BasePruningMethod)}
        for name, buffer in owner.named_buffers(recurse=False):
            is_wanted = id(buffer) in saved and (which == "copy" or _is_number(buffer))
            if is_wanted and name not in masks:  # a mean of masks would be no mask
                slots.setdefault(id(buffer), (owner, name))
    return [*slots.values()]


def _spectral_norms(module: torch.nn.Module) -> Iterator[tuple[Any, Any, Any, int]]:
    """Yield weight, left and right singular vector, and output dimension, of spectral norms."""
    for owner in module.modules():
        for hook in _hooks_of(owner, SpectralNorm):
            name = hook.name
            tensors = (getattr(owner, f"{name}_{part}") for part in ("orig", "u", "v"))
            yield (*tensors, hook.dim)
        if isinstance(owner, ParametrizationList):
            for norm in owner:
                if isinstance(norm, _SpectralNorm) and hasattr(norm, "_u"):
                    yield owner.original, norm._u, norm._v, norm.dim


def _hooks_of(module: torch.nn.Module, kind: type) -> list[Any]:
    """Return the hooks with which torch computes a weight of a module."""
    hooks = vars(module).get("_forward_pre_hooks", {}).values()
    return [hook for hook in hooks if isinstance(hook, kind)]


def _is_compiled_for_cuda(module: torch.nn.Module) -> bool:
    """Whether the module may have a CUDA graph, which reads fixed addresses."""
    compiled = any(
        getattr(m, "_compiled_call_impl", None) is not None or type(m).__name__ == "OptimizedModule"
        for m in module.modules()
    )
    return compiled and any(p.is_cuda for p in module.parameters())
