"""Skip optimizer steps with bad losses or gradients, decided on the device where possible."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from lightning.pytorch.strategies import DeepSpeedStrategy
from torch import nn
from torch.optim import Optimizer

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.invalid_loss.actions import Action, InvalidLossError
from lightning_hooks.hooks.invalid_loss.loss_history import Reading, Step, components
from lightning_hooks.hooks.invalid_loss.spikes import Spikes
from lightning_hooks.utils import foreach
from lightning_hooks.utils.nonfinite import gradients_non_finite, over_ranks, scalar

if TYPE_CHECKING:
    from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook

__all__ = ["Skip"]


class JudgedStep(NamedTuple):
    """A step with a flag on the device, and the first and last of its batches in the log."""

    iteration: int
    first: int
    last: int
    flag: torch.Tensor


class Skip(Action):
    """Skips optimizer steps whose losses or gradients are NaN or infinite, on all ranks alike.

    A skipped step changes neither weights nor optimizer state nor buffers. More than
    ``max_skips`` in a row raise. The way to skip depends on the optimizer:

    - Optimizers with ``found_inf`` (``fused=True``), an attribute for gradient scalers: the flag
      stays on the device. After a skipped first step the momentum of fused SGD, allocated but not
      written by torch, is zeroed; the next step then equals a first step.
    - Other optimizers: the host reads the flag and drops the gradients.
    - With a gradient scaler only losses are judged: the scaler checks the gradients.

    Raises:
        ValueError: for strategies and optimizers with steps that cannot be skipped, and for spikes
            where the module steps several optimizers, each with a loss of its own.
    """

    guards_steps = True

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        super().__init__(hook, runner)
        trainer = runner.trainer
        if isinstance(trainer.strategy, DeepSpeedStrategy):
            raise ValueError("action='skip' does not work with DeepSpeed, which steps by itself")
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, torch.optim.LBFGS):
                raise ValueError(
                    "action='skip' does not work with LBFGS, which runs the model many times a step"
                )
        several = len(trainer.optimizers) > 1 and not runner.hooks_own_step
        if hook.spike is not None and several:
            raise ValueError(
                "spike beside action='skip' needs one loss, and each of the "
                f"{len(trainer.optimizers)} optimizers of {type(runner.module).__name__} has a "
                "loss of its own: write action='restore' or 'stop', for which the loss counts that "
                "training_step returns, or leave spike out"
            )
        self._has_scaler = precision.has_grad_scaler(trainer)
        self._fused = {optimizer for optimizer in trainer.optimizers if _takes_found_inf(optimizer)}
        self._losses: dict[Optimizer, list[torch.Tensor]] = {o: [] for o in trainer.optimizers}
        self._logged: dict[str, torch.Tensor] = {}  # Lightning keeps old values
        self._left: Mapping[str, Any] = {}  # the outputs of the batch before
        self._spikes = Spikes.of(hook.spike)
        self._buffers = BufferSnapshot(trainer.lightning_module)
        self._log = runner.log_buffer
        self._several_ranks = runner.world_size > 1
        self._first: int | None = None  # the first batch of the next step, as the log counts
        # optimizers within their step: the flag, and the parameters without momentum
        self._pending: dict[Optimizer, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._unread: list[JudgedStep] = []
        self._read: list[tuple[int, bool]] = []  # of each step since the last reading
        self._reason = ""  # of the next skip, from a reading of its first batches
        self._steps = 0
        self._skipped: list[int] = []
        self._in_a_row: list[int] = []
        fit = Driver.of(trainer).fit
        fit.callback(self._remove_flags)
        for optimizer in trainer.optimizers:
            fit.callback(optimizer.register_step_post_hook(self._after_step).remove)
        self._has_gradients = True
        self._clip = runner.module.configure_gradient_clipping
        fit.patch(runner.module, "configure_gradient_clipping", instead=self._clip_gradients)
        fit.callback(setattr, self._log, "before_average", self._log.before_average)
        self._log.before_average = self._read_flags

    def state(self) -> dict[str, Any]:
        """Return the counts of steps that were judged and skipped."""
        in_a_row = self._in_a_row
        for step in self._read:  # after an error
            in_a_row = _in_a_row(in_a_row, step)
        steps = self._steps + len(self._read)
        return {"steps": steps, "skipped": [*self._skipped], "in_a_row": [*in_a_row]}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        if state:  # the file is of a run that skips, too
            self._steps = state["steps"]
            # an error may have ended a batch that is trained again
            self._skipped, self._in_a_row = (
                [i for i in state[name] if i < self.runner.iter] for name in ("skipped", "in_a_row")
            )

    # -- each step -------------------------------------------------------------------------

    def before_batch(self) -> None:
        """Copy the buffers at the first batch of a step; mark old outputs and logged values.

        The previous batch may have returned and logged values after its last backward. These
        values must not judge the new batch.
        """
        self._left = getattr(self.runner, "outputs", {})
        components({}, self.runner, self._logged)
        if self._first is None:
            self._buffers.keep()
            self._first = self._log.progress.completed
            for losses in self._losses.values():  # left over from losses after a step
                losses.clear()

    def before_backward(self, loss: torch.Tensor) -> None:
        """Judge the next step of every optimizer by this loss and its components, too."""
        value = scalar(loss.detach())
        if self._spikes is not None:
            scaler = precision.grad_scaler(self.runner.trainer)
            # the scale of a scaler changes, and a jump of the scale is no spike
            value = value if scaler is None else value / scaler.scale(torch.ones_like(value))
            value = self._spikes.judged(value)
        outputs = getattr(self.runner, "outputs", {})
        known = {} if outputs is self._left else outputs  # under manual optimization not yet
        judged = [value, *components(known, self.runner, self._logged)]
        for losses in self._losses.values():
            losses += judged

    def before_step(self, optimizer: Optimizer, iteration: int) -> None:
        """Judge the coming step, and skip a bad step."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [grad for p in parameters if (grad := p.grad) is not None]
        losses, self._losses[optimizer] = self._losses.get(optimizer, []), []
        flag = gradients_non_finite(() if self._has_scaler else gradients, losses)
        if gradients:
            flag = flag.to(gradients[0].device)
        if self._several_ranks:
            flag = over_ranks(flag)
        now = self._log.progress.completed
        self._unread.append(
            JudgedStep(iteration, now if self._first is None else self._first, now, flag)
        )
        self._first = None
        fresh = _without_momentum(optimizer)
        self._has_gradients = True
        if not self._skips_on_device(optimizer, fresh):
            if flag:
                self._has_gradients = False
                self._buffers.restore()
                for parameter in parameters:
                    parameter.grad = None
        elif self._has_scaler:
            self._buffers.restore(flag)
            for gradient in gradients[:1]:  # the scaler finds the NaN, on the device
                gradient.masked_fill_(flag.bool(), float("nan"))
        else:
            self._buffers.restore(flag)
            self._pending[optimizer] = flag, fresh
            optimizer.grad_scale, optimizer.found_inf = None, flag  # type: ignore[attr-defined]

    def _clip_gradients(self, *args: Any, **kwargs: Any) -> None:
        """Clip the gradients of a step that is not skipped; torch clips no empty list by value."""
        if self._has_gradients:
            self._clip(*args, **kwargs)

    def _skips_on_device(self, optimizer: Optimizer, fresh: list[torch.Tensor]) -> bool:
        """Whether the optimizer's own kernels read the flag."""
        if optimizer not in self._fused:
            return False
        # with dampening a first step differs from a step with zeroed momentum
        dampened = fresh and any(group["dampening"] for group in optimizer.param_groups)
        return self._has_scaler or not dampened

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Remove the flag; zero momentum allocated but not written by torch."""
        if optimizer in self._pending:
            flag, fresh = self._pending.pop(optimizer)
            _remove_found_inf(optimizer)
            for parameter in fresh:
                momentum = optimizer.state[parameter].get("momentum_buffer")
                if momentum is not None:
                    momentum.masked_fill_(flag.bool(), 0)

    # -- each line of the log ----------------------------------------------------------------

    def _read_flags(self) -> None:
        """Count the skipped steps, and take their NaN and infinite values out of the log."""
        if self._unread:
            flags = [judged.flag for judged in self._unread]
            self.count(
                [value > 0 for value in torch.stack([f.to(flags[0]) for f in flags]).tolist()]
            )
        if self._first is not None:  # bad values here skip the step of these batches
            self._log.leave_out(self._first, self._log.progress.completed)
        if self._skipped:
            # not into the output, where a logger would take the number for an evaluation's
            self._log.replace({"skipped_steps": len(self._skipped)})

    def count(self, flags: list[bool]) -> None:
        """Count the skipped steps among the last ones."""
        for step, is_bad in zip(self._unread, flags, strict=True):
            self._read.append((step.iteration, is_bad))
            if is_bad:
                self._skipped.append(step.iteration)
                self._log.leave_out(step.first, step.last)
        self._unread = []

    # -- each reading ------------------------------------------------------------------------

    def flags(self) -> list[torch.Tensor]:
        """Return the flag of each step since the last reading or line of the log."""
        return [judged.flag for judged in self._unread]

    def first_bad_step(self, reading: Reading) -> Step | None:
        """Return the first step with a bad loss, else the first with bad gradients."""
        skipped = [iteration for iteration, is_bad in self._read if is_bad]
        bad = [step for step in reading.steps if step.iter in skipped[:1]]
        return next(iter([*reading.bad, *bad]), None)

    def handle(self, reading: Reading, at_interval: bool) -> None:
        """Warn of the skipped steps; raise for too many steps, or for bad weights."""
        steps, self._read = self._read, []
        skipped, limit = [iteration for iteration, is_bad in steps if is_bad], self.hook.max_skips
        if not reading.all_good:
            self._reason = self.describe(reading)
        reason = self._reason or (
            "their losses were finite, their gradients were not"
            if reading.steps
            else "their gradients were not finite; no step had a loss to look at"
        )
        if steps:  # otherwise the step of these batches comes later
            self._reason = ""
        for step in steps:
            self._in_a_row = _in_a_row(self._in_a_row, step)
            if limit is not None and len(self._in_a_row) > limit:
                raise InvalidLossError(
                    f"{reason}\nmax_skips={limit}: {len(self._in_a_row)} optimizer steps were bad "
                    f"one after the other, from iter {self._in_a_row[0]} to iter {step[0]}; the "
                    "weights are those from before them"
                )
        self._steps += len(steps)
        if reading.has_nonfinite_weights:
            self.fail(reading)
        if skipped:
            self.runner.logger.warning(
                "skipped the optimizer steps of iters %s\n%s", _listed(skipped), reason
            )

    def after_error(self, reading: Reading) -> None:
        """Do nothing: bad steps changed nothing."""

    def report(self) -> None:
        """Log the number of skipped steps."""
        if self._skipped:
            self.runner.logger.warning(
                "CheckInvalidLossHook skipped %d of %d optimizer steps: those of iters %s",
                len(self._skipped),
                self._steps,
                _listed(self._skipped),
            )

    def _remove_flags(self) -> None:
        for optimizer in self._pending:  # an error ended its step
            _remove_found_inf(optimizer)


def _in_a_row(iters: list[int], step: tuple[int, bool]) -> list[int]:
    """Return the last bad steps one after the other, up to a step."""
    iteration, is_bad = step
    return [*iters, iteration] if is_bad else []


def _listed(iters: list[int]) -> str:
    return listed([*map(str, iters)], shown=10)


def _takes_found_inf(optimizer: Optimizer) -> bool:
    """Whether an optimizer reads the attribute ``found_inf`` of gradient scalers."""
    takes = getattr(optimizer, "_step_supports_amp_scaling", False)
    return takes and "grad_scaler" not in inspect.signature(optimizer.step).parameters


def _remove_found_inf(optimizer: Optimizer) -> None:
    for name in ("found_inf", "grad_scale"):
        vars(optimizer).pop(name, None)  # a second hook may have removed it


def _without_momentum(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an SGD that get a momentum buffer in this step."""
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


class BufferSnapshot:
    """A copy of a module's buffers (BatchNorm's statistics), restored if a flag is set.

    The forward of a bad batch changes buffers before the flag is known. All buffers of a type go
    into one tensor: a few kernels for any number of buffers.

    Args:
        module: The module; a buffer may be replaced by another tensor of the same shape.
    """

    def __init__(self, module: nn.Module) -> None:
        self._slots = [
            (part, name)
            for part in module.modules()
            for name, buffer in part.named_buffers(recurse=False)
            if not nn.parameter.is_lazy(buffer) and not buffer.is_sparse
        ]
        self._copies: list[tuple[list[torch.Tensor], torch.Tensor]] = []

    def keep(self) -> None:
        """Copy the present buffers."""
        present = [getattr(part, name, None) for part, name in self._slots]
        groups = foreach.by_type(
            buffer for buffer in present if buffer is not None and buffer.numel()
        )
        self._copies = [(buffers, foreach.flat(buffers)) for buffers in groups]

    def restore(self, flag: torch.Tensor | None = None) -> None:
        """Restore the copies; with a flag (a 0-d tensor) only if the flag is not 0."""
        for buffers, copy in self._copies:
            with torch.no_grad():
                if flag is not None:
                    copy = torch.where(flag.to(copy.device).bool(), copy, foreach.flat(buffers))
                foreach.copy_flat_(buffers, copy)
