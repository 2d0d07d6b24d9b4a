"""A hook whose average is updated after optimizer steps: what all update rules share."""

from __future__ import annotations

from typing import Any, Literal

import lightning as L
import torch

from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps
from lightning_hooks.hooks.averaging.base import AveragingHook
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_choice, check_int, check_number, check_path

__all__ = ["StepAverageHook", "check_momentum"]


class StepAverageHook(AveragingHook):
    """Updates an average after optimizer steps: ``average += w * (parameter - average)``.

    A subclass says how much the model weighs (``get_momentum``) and at which steps
    (``updates_at``). A step whose weights are NaN or infinite is left out, on the device, and
    the next evaluation or checkpoint warns of it. Steps that a gradient scaler skips are none,
    but with a fused optimizer, which skips them on the device: the unchanged weights are averaged
    once more then.

    Args:
        interval: Optimizer steps from one update to the next.
        resume_from: A checkpoint that the run goes on from (weights, average, counters and
            optimizer), as with ``Trainer.fit(ckpt_path=...)``, which it gives way to. Not where
            parameters are sharded.
        buffers: What the average does with buffers in the state dict. ``"ignore"``: it goes with
            the model's own. ``"average"``: those with a fraction are averaged as the parameters
            are, integers are the model's. ``"copy"``: it has them as they were at its last
            update. Taken in and out together with the parameters.
        begin_iter: Iterations of training before averaging begins. Until then the average is the
            model itself: what it is evaluated with, saved and exported.
        begin_epoch: The same in epochs; give one of the two.
        swap: ``"auto"`` points the parameters at the average, and copies where storage is shared
            or a compiled module may have a CUDA graph. ``"copy"`` copies always: for graphs that
            you have captured yourself.
        check: Where to look for NaN. ``"sample"``: in all numbers of a small model and a part of
            those of a large one, see
            :class:`~lightning_hooks.hooks.averaging.nan_safe_update.MaskedUpdate`. ``"all"``:
            everywhere, which costs half an update more.
        device: Where the average is, ``"cpu"`` to have the accelerator's memory for the model.
            Then every update copies the weights there, which waits for the accelerator: choose a
            larger ``interval``. None for the parameters' own.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for ``resume_from`` where
            parameters are sharded.
    """

    interval = 1
    resume_from: str | None = None
    begin_iter = begin_epoch = 0
    distinguishing: tuple[str, ...] = ("interval",)
    """The arguments that tell two hooks of the class apart, beside those of every average."""

    _applied: AppliedSteps | None = None
    _counted = 0

    def __init__(
        self,
        interval: int = 1,
        resume_from: str | None = None,
        *,
        buffers: Literal["ignore", "average", "copy"] = "ignore",
        begin_iter: int = 0,
        begin_epoch: int = 0,
        swap: Literal["auto", "copy"] = "auto",
        check: Literal["sample", "all"] = "sample",
        device: str | None = None,
    ) -> None:
        check_int("interval", interval, 1)
        check_int("begin_iter", begin_iter, 0)
        check_int("begin_epoch", begin_epoch, 0)
        if begin_iter and begin_epoch:
            raise ValueError(
                "give begin_iter or begin_epoch, not both, "
                f"got begin_iter={begin_iter} and begin_epoch={begin_epoch}"
            )
        check_choice("buffers", buffers, ("ignore", "average", "copy"))
        check_choice("swap", swap, ("auto", "copy"))
        check_choice("check", check, ("sample", "all"))
        self.device = None if device is None else str(_device(device))
        self.interval, self.resume_from = interval, check_path("resume_from", resume_from)
        self.buffers, self.swap, self.check = buffers, swap, check
        self.begin_iter, self.begin_epoch = begin_iter, begin_epoch

    # -- the rule --------------------------------------------------------------------------

    def get_momentum(self, runner: Any) -> float:
        """Return how much the model weighs in the update that comes now, in (0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no get_momentum(runner)")

    def updates_at(self, step: int) -> bool:
        """Whether there is an update after this optimizer step, counted from 0."""
        return step % self.interval == 0

    @property
    def steps(self) -> int:
        """Optimizer steps since averaging began."""
        return self._steps

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse what cannot be resumed from, and listen to checkpoints."""
        shards = trainer.strategy.restore_checkpoint_after_setup
        if stage == "fit" and shards and self.resume_from is not None:
            raise ValueError(
                f"resume_from={self.resume_from!r} does not work with "
                f"{type(trainer.strategy).__name__}, which loads checkpoints itself; "
                "use Trainer.fit(ckpt_path=...)"
            )
        super().setup(trainer, pl_module, stage)

    # -- the points ------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Start the average: from a checkpoint's, an earlier fit's, or the weights."""
        if self.resume_from is not None and self._loaded is None and runner.iter == 0:
            self._resume(runner, self.resume_from)
        self.start(runner.module, goes_on=runner.iter > 0)
        average, trainer = self._average, runner.trainer
        assert average is not None
        if not self._begins(runner.iter, trainer.current_epoch):
            average.tracks = True
        elif average.tracks:  # the last fit ended before it
            self._begin()
        self._close()
        self._applied, self._counted = AppliedSteps(trainer), 0

    def after_train_iter(self, runner: Any) -> None:
        """Update the average, if there was an optimizer step."""
        average = self._average
        if average is None or self._applied is None:
            return
        counted, self._counted = self._counted, self._applied.made
        if average.tracks:
            if self._begins(runner.iter + 1, runner.trainer.current_epoch):
                self._begin()
        elif self._counted != counted:
            if self.updates_at(self._steps):
                average.update(self.get_momentum(runner))
            self._steps += 1

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin with the epoch that was asked for."""
        waits = self.begin_epoch > 0 and self._average is not None and self._average.tracks
        if waits and trainer.current_epoch >= self.begin_epoch:
            self._begin()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Leave optimizers and module as they were."""
        self._close()
        super().teardown(trainer, pl_module, stage)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Leave optimizers and module as they were."""
        self._close()
        super().on_exception(trainer, pl_module, exception)

    def _close(self) -> None:
        if self._applied is not None:
            self._applied.close()
            self._applied = None

    def _begins(self, iterations: int, epoch: int) -> bool:
        return iterations >= self.begin_iter and epoch >= self.begin_epoch

    def _begin(self) -> None:
        assert self._average is not None
        self._average.begin()
        self._steps = 0

    def _resume(self, runner: Any, path: str) -> None:
        runner.resume(path)
        checkpoint = files.load_torch(path)
        self._load(runner.trainer, checkpoint)
        own = checkpoint.get("callbacks", {}).get(self.state_key)
        if own is not None:
            self.load_state_dict(own)

    def state_arguments(self) -> dict[str, Any]:
        """The constructor arguments that tell two apart."""
        arguments = {name: getattr(self, name) for name in self.distinguishing}
        for name in ("buffers", "begin_iter", "begin_epoch"):
            value = getattr(self, name)
            if value != getattr(
                StepAverageHook, name
            ):  # a key in files: the fewer, the longer it stays
                arguments[name] = value
        return arguments


def _device(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be None or a device's name, got {device!r}") from None


def check_momentum(value: Any) -> None:
    """Refuse what is no number in (0, 1).

    Raises:
        TypeError: if it is no number.
        ValueError: if it is out of range.
    """
    check_number("momentum", value)
    if not 0 < value < 1:
        raise ValueError(f"momentum must be in (0, 1), got {value}")
