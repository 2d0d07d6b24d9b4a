"""Optimizer steps that are not made, decided on the device where the optimizer can.

The buffers of a module from before a step, to be put back without asking the device.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy
from torch import nn

from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.utils.nonfinite import gradients_non_finite, over_ranks, scalar

__all__ = ["BufferGuard", "StepSkipper"]


class StepSkipper:
    """Skips the optimizer steps whose losses or gradients are NaN or infinite, on all ranks alike.

    A skipped step changes neither weights nor optimizer state nor buffers. How it is skipped:

    - Optimizers that take ``found_inf`` (``fused=True``), as from a gradient scaler: the flag
      stays on the device. After a skipped first step the momentum of fused SGD, which torch has
      not written, is zeroed: the next step makes of it what a first one does.
    - Others: the host reads the flag, and drops the gradients, without which they do nothing.
    - With a gradient scaler, which looks after the gradients itself, only losses are judged.

    Args:
        trainer: The Trainer, in a fit.

    Raises:
        ValueError: for strategies and optimizers whose steps cannot be skipped.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        if isinstance(trainer.strategy, DeepSpeedStrategy):
            raise ValueError("action='skip' does not work with DeepSpeed, which steps by itself")
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, torch.optim.LBFGS):
                raise ValueError(
                    "action='skip' does not work with LBFGS, which runs the model many times a step"
                )
        self._scaled = precision.has_grad_scaler(trainer)
        self._fused = {id(o) for o in trainer.optimizers if _takes_found_inf(o)}
        self._many = trainer.world_size > 1
        self._losses: dict[int, list[torch.Tensor]] = {id(o): [] for o in trainer.optimizers}
        self._buffers = BufferGuard(trainer.lightning_module)
        self._group_is_open = False
        self._stepping: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._touched: list[torch.optim.Optimizer] = []
        self._handles = [o.register_step_post_hook(self._after_step) for o in trainer.optimizers]
        self.decisions: list[tuple[int, torch.Tensor | bool]] = []
        """Iteration of each optimizer step and whether it was skipped; whoever reads clears it."""

    def before_batch(self) -> None:
        """Keep the buffers, at the first batch of those that make a step."""
        if not self._group_is_open:
            self._buffers.keep()
            self._group_is_open = True
            for losses in self._losses.values():  # those of an optimizer that has stepped before
                losses.clear()

    def before_backward(self, loss: torch.Tensor) -> None:
        """Judge this loss when an optimizer steps, whichever it is."""
        for losses in self._losses.values():
            losses.append(scalar(loss.detach()))

    def before_step(self, optimizer: torch.optim.Optimizer, iteration: int) -> None:
        """Judge a step that is about to be made, and skip it if it is bad."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        losses, self._losses[id(optimizer)] = self._losses.get(id(optimizer), []), []
        self._group_is_open = False
        flag = gradients_non_finite(() if self._scaled else gradients, losses)
        if gradients:
            flag = flag.to(gradients[0].device)
        if self._many:
            flag = over_ranks(flag)
        decision: torch.Tensor | bool = flag
        fresh = _without_momentum(optimizer)
        if not self._on_device(optimizer, fresh):
            decision = bool(flag)
            if decision:
                self._buffers.put_back()
                for parameter in parameters:
                    parameter.grad = None
        elif self._scaled:
            self._buffers.put_back(flag)
            for gradient in gradients[:1]:  # the scaler looks for such values, on the device
                gradient.masked_fill_(flag.bool(), float("nan"))
        else:
            self._buffers.put_back(flag)
            self._stepping[id(optimizer)] = flag, fresh
            self._touched.append(optimizer)
            optimizer.grad_scale, optimizer.found_inf = None, flag  # type: ignore[attr-defined]
        self.decisions.append((iteration, decision))

    def _on_device(self, optimizer: torch.optim.Optimizer, fresh: list[torch.Tensor]) -> bool:
        """Whether the host need not know: the optimizer's own kernels look at the flag."""
        if id(optimizer) not in self._fused:
            return False
        # with dampening a first step differs from one on zeroed momentum
        dampened = fresh and any(group["dampening"] for group in optimizer.param_groups)
        return self._scaled or not dampened

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take the flag away again; zero momentum that was made but not written."""
        flag, fresh = self._stepping.pop(id(optimizer), (None, []))
        if flag is None:
            return
        self._touched.remove(optimizer)
        for name in ("found_inf", "grad_scale"):  # or a second hook has taken them away
            optimizer.__dict__.pop(name, None)
        for parameter in fresh:
            momentum = optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                momentum.masked_fill_(flag.bool(), 0)

    def close(self) -> None:
        """Leave the optimizers as they were; doing it twice does no harm."""
        for handle in self._handles:
            handle.remove()
        for optimizer in self._touched:  # an error came between
            optimizer.__dict__.pop("found_inf", None)
            optimizer.__dict__.pop("grad_scale", None)
        self._handles, self._touched = [], []
        self._stepping.clear()


def _takes_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has ``found_inf`` as an attribute, as a gradient scaler sets it."""
    takes = getattr(optimizer, "_step_supports_amp_scaling", False)
    return takes and "grad_scaler" not in inspect.signature(optimizer.step).parameters


def _without_momentum(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an SGD with momentum that have none yet and are to be stepped."""
    if not isinstance(optimizer, torch.optim.SGD):
        return []
    return [
        parameter
        for group in optimizer.param_groups
        if group["momentum"]
        for parameter in group["params"]
        if parameter.grad is not None
        and optimizer.state.get(parameter, {}).get("momentum_buffer") is None
    ]


class BufferGuard:
    """Keeps a module's buffers (BatchNorm's statistics) and puts them back if a flag says so.

    The forward of a bad batch spoils them, before anyone can know. All buffers of a type go
    into one tensor: a few kernels, whatever their number.

    Args:
        module: The module; buffers that are replaced by others of the same shape are found.
    """

    def __init__(self, module: nn.Module) -> None:
        self._places = [
            (part._buffers, name)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None and not nn.parameter.is_lazy(buffer) and not buffer.is_sparse
        ]
        self._kept: list[tuple[list[torch.Tensor], torch.Tensor]] = []

    @torch.no_grad()
    def keep(self) -> None:
        """Copy the buffers as they are."""
        groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = defaultdict(list)
        for buffers, name in self._places:
            buffer = buffers.get(name)
            if buffer is not None and buffer.numel():
                groups[buffer.device, buffer.dtype].append(buffer)
        self._kept = [(group, _flat(group)) for group in groups.values()]

    @torch.no_grad()
    def put_back(self, flag: torch.Tensor | None = None) -> None:
        """Put the kept values back: where the flag is not 0, or always.

        Args:
            flag: A 0-d tensor.
        """
        for buffers, kept in self._kept:
            value = kept
            if flag is not None:
                value = torch.where(flag.to(kept.device).bool(), kept, _flat(buffers))
            pieces = torch.split(value, [buffer.numel() for buffer in buffers])
            shaped = [p.view(b.shape) for p, b in zip(pieces, buffers, strict=True)]
            torch._foreach_copy_(buffers, shaped)


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
