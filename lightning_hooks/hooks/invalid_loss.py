"""``CheckInvalidLossHook``: no NaN goes unseen, and none costs a synchronisation per step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import lightning as L
import torch

from lightning_hooks import loops
from lightning_hooks.driver import Driver
from lightning_hooks.hook import Hook
from lightning_hooks.registry import HOOKS
from lightning_hooks.step import OrphanLoss

__all__ = ["CheckInvalidLossHook", "InvalidLossError"]


class InvalidLossError(FloatingPointError, AssertionError):
    """A loss is NaN or infinite. An AssertionError too, as mmdetection raises."""


class _Step(NamedTuple):
    """One step's loss, and where it was."""

    loss: torch.Tensor
    terms: dict[str, Any]
    iter: int
    epoch: int
    inner_iter: int


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):
    """Raises when the loss of a step is NaN or infinite, and says which step it was.

    Every step counts, yet the device is read once per ``interval``: the losses are kept where they
    are, and stacked and copied together. They are read also before every checkpoint and every
    validation, and at the end of the fit, so that no whole checkpoint follows a bad step. The error
    names the first bad step, and of the values in its ``log_vars`` (or the numbers that the step
    returned and logged) those that are bad.

    Args:
        interval: Iterations from one reading to the next, at least 1.

    Raises:
        ValueError: if ``interval`` is no int of at least 1.
        InvalidLossError: in training.

    Source: mmdetection's ``CheckInvalidLossHook``.

    Note:
        Departures from mmdetection: every step is checked (there: every ``interval``-th, the
        others are missed), and also with ``python -O``, which drops its assertion. The priority is
        ``ABOVE_NORMAL`` (there: ``NORMAL``), so that hooks that save come later.
    """

    priority = "ABOVE_NORMAL"
    """Before the hooks that save: a checkpoint of the step that is checked waits for it."""

    def __init__(self, interval: int = 50) -> None:
        super().__init__()
        if type(interval) is not int or interval < 1:
            raise ValueError(f"interval must be an int of at least 1, got {interval!r}")
        self.interval = interval
        self._steps: list[_Step] = []

    def after_train_iter(self, runner: Any) -> None:
        """Keep the step's loss; read all that are kept at every ``interval``-th iteration."""
        outputs = runner.outputs
        loss = outputs.get("loss")
        if isinstance(loss, torch.Tensor):
            # the driver's are detached already; asking them costs more than all the rest
            self._steps.append(
                _Step(
                    loss if isinstance(loss, OrphanLoss) else loss.detach(),
                    _terms(outputs, runner),
                    runner.iter,
                    runner.epoch,
                    runner.inner_iter,
                )
            )
        if self.every_n_iters(runner, self.interval):
            self._check(runner)

    def after_run(self, runner: Any) -> None:
        """Read what is left."""
        self._check(runner)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read before a validation, and what hooks save after it."""
        if self._steps:
            self._check(Driver.of(trainer).runner)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Read before a checkpoint is written."""
        if self._steps:
            self._check(Driver.of(trainer).runner)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Forget the losses: another error here would hide the one that is raised."""
        self._steps.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the kept losses out of copies."""
        return {**super().__getstate__(), "_steps": []}

    def _check(self, runner: Any) -> None:
        steps, self._steps = self._steps, []
        if not steps:
            return
        losses = torch.stack([_scalar(step.loss) for step in steps]).tolist()
        bad = [step for step, loss in zip(steps, losses, strict=True) if not math.isfinite(loss)]
        if runner.world_size > 1:  # all ranks raise, or those that go on wait for ever
            if not runner.trainer.strategy.reduce_boolean_decision(bool(bad), all=False):
                return
            if not bad:
                raise InvalidLossError(
                    f"the loss of another rank became invalid at iter {steps[0].iter} or later, "
                    f"up to {steps[-1].iter}"
                )
        if bad:
            raise InvalidLossError(_message(bad[0], len(bad), steps[-1].iter))


def _scalar(loss: torch.Tensor) -> torch.Tensor:
    loss = loss.as_subclass(torch.Tensor)  # ours would go through Python in every call
    return loss.reshape(()) if loss.numel() == 1 else loss.mean()


def _terms(outputs: Mapping[str, Any], runner: Any) -> dict[str, Any]:
    """Return the step's numbers by name, on their device."""
    named = outputs.get("log_vars")
    if named is None:
        named = {**outputs, **loops.step_metrics(runner.trainer)}
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in named.items()
        if name != "loss"
        and (isinstance(value, float) or (isinstance(value, torch.Tensor) and value.numel() == 1))
    }


def _message(step: _Step, count: int, last: int) -> str:
    values = {"loss": float(_scalar(step.loss))}
    values.update({name: float(value) for name, value in step.terms.items()})
    bad = {name: value for name, value in values.items() if not math.isfinite(value)}
    good = {name: value for name, value in values.items() if math.isfinite(value)}
    lines = [
        f"the loss became {values['loss']} at iter {step.iter} "
        f"(epoch {step.epoch}, inner_iter {step.inner_iter}; all counted from 0)",
        f"not finite: {_listing(bad)}",
    ]
    if good:
        lines.append(f"finite: {_listing(good)}")
    lines.append(
        f"{count} of the losses kept up to iter {last} are not finite; the weights may be spoilt "
        f"since iter {step.iter}: go on from a checkpoint before it. Common causes: too high a "
        "learning rate, no warm-up, no gradient clipping, an empty or broken batch, float16"
    )
    return "\n".join(lines)


def _listing(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in values.items())
