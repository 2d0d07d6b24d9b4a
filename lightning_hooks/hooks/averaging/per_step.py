"""``StepAverageHook``: update an average after optimizer steps, by a subclass's rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import class_name, listed
from lightning_hooks.engine.hook_states import Identity
from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps
from lightning_hooks.hooks.averaging.base import AveragingHook, averages_of
from lightning_hooks.hooks.averaging.checks import check_device, check_rivals
from lightning_hooks.hooks.averaging.module_average import ModuleAverage
from lightning_hooks.hooks.averaging.saved_average import SavedAverage, find_averages
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from lightning_hooks.storage import torch_files
from lightning_hooks.utils.arguments import check_choice, check_int, check_number, check_path

__all__ = ["StepAverageHook", "check_momentum"]


class StepAverageHook(AveragingHook):
    """Updates an average after optimizer steps: ``average += w * (parameter - average)``.

    A subclass returns the weight ``w`` of the model (``get_momentum``) and the steps of the
    updates (``updates_at``). A step with NaN or infinite weights is left out, on the device, and
    the next evaluation or checkpoint warns. Steps skipped by a gradient scaler do not count, except
    with a fused optimizer: a fused optimizer skips on the device, and the unchanged weights are
    averaged once more.

    Args:
        interval: Optimizer steps from one update to the next.
        resume_from: A checkpoint to resume from (weights, average, counters and optimizer), as
            with ``Trainer.fit(ckpt_path=...)``, which takes precedence. Not where parameters are
            sharded.
        buffers: ``"ignore"``: the average uses the model's own buffers. ``"average"``: buffers of
            floating-point type in the state dict are averaged like parameters, integers are the
            model's. ``"copy"``: the average has the buffers of the last update.
        begin_iter: Iterations of training before averaging begins. Until then the average is the
            model itself.
        begin_epoch: Epochs of training before averaging begins; instead of ``begin_iter``.
        swap: ``"auto"`` points the parameters at the average, and copies where storage is shared
            or a compiled module may have a CUDA graph. ``"copy"`` always copies: for your own
            captured graphs.
        check: ``"sample"`` searches for NaN in all numbers of a small model and in a part of a
            large model, see ``NanSafeUpdate``; ``"all"`` searches all numbers and costs half an
            update more.
        device: The device of the average, ``"cpu"`` to leave the accelerator's memory to the model.
            Every update then copies the weights and waits for the accelerator: choose a larger
            ``interval``. None for the devices of the parameters.
        precise_bn: Whether the average has its own BatchNorm statistics, estimated from training
            data with the averaged weights: after each epoch, before a validation within an epoch
            and with each checkpoint, if the average was updated since. True for 8192 samples, an
            int for another number, or a dict of ``PreciseBNHook``'s arguments. The model keeps its
            own statistics; ``buffers`` is for all other buffers.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for ``resume_from`` where
            parameters are sharded, or beside a hook that swaps as mmcv's EMAHook does.
    """

    interval = 1
    resume_from: str | None = None
    begin_iter = begin_epoch = 0
    distinguishing: tuple[str, ...] = ("interval",)
    """Arguments of the class that distinguish two hooks in a checkpoint."""

    _applied: AppliedSteps | None = None
    _counted = 0  # applied steps seen so far

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
        precise_bn: bool | int | dict[str, Any] = False,
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
        try:
            self.device = None if device is None else str(torch.device(str(torch.device(device))))
        except (
            RuntimeError,
            TypeError,
            ValueError,
        ):  # torch.device(3) has a name that torch.device refuses
            message = f"device must be None or a device's name, such as 'cuda', got {device!r}"
            raise ValueError(message) from None
        if str(self.device).startswith("meta"):
            raise ValueError(
                f"device={self.device!r} keeps no values; write device='cpu', or leave it out "
                "for the model's"
            )
        self.interval, self.resume_from = interval, check_path("resume_from", resume_from)
        self.buffers, self.swap, self.check = buffers, swap, check
        self.begin_iter, self.begin_epoch = begin_iter, begin_epoch
        estimator(precise_bn)  # raises for a bad argument
        self.precise_bn = precise_bn

    # -- the rule --------------------------------------------------------------------------

    def get_momentum(self, runner: Any) -> float:
        """Return the weight of the model in the coming update, in (0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no get_momentum(runner)")

    def updates_at(self, step: int) -> bool:
        """Whether an optimizer step, counted from 0, is followed by an update."""
        return step % self.interval == 0

    @property
    def steps(self) -> int:
        """Optimizer steps since averaging began."""
        return self._steps

    @property
    def updates(self) -> int:
        """Updates of the average since averaging began."""
        return self._updates

    def _take(self, saved: SavedAverage | None, *, for_fit: bool) -> None:
        """Fill in the steps for Lightning's files, the updates for older files of ours."""
        if saved is not None and saved.steps is None:
            saved.steps = (saved.updates or 0) * self.interval
        if saved is not None and saved.updates is None:
            saved.updates = sum(map(self.updates_at, range(saved.steps or 0)))
        super()._take(saved, for_fit=for_fit)

    def state_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments that distinguish two hooks of the class."""
        arguments = {name: getattr(self, name) for name in self.distinguishing}
        for name in ("buffers", "begin_iter", "begin_epoch"):
            value = getattr(self, name)
            if value != getattr(StepAverageHook, name):  # the key in files should change rarely
                arguments[name] = value
        return arguments

    # -- the run ---------------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse ``resume_from`` where the strategy loads checkpoints itself."""
        shards = trainer.strategy.restore_checkpoint_after_setup
        if stage == "fit" and shards and self.resume_from is not None:
            raise ValueError(
                f"resume_from={self.resume_from!r} does not work with "
                f"{type(trainer.strategy).__name__}, which loads checkpoints itself; "
                "use Trainer.fit(ckpt_path=...)"
            )
        super().setup(trainer, pl_module, stage)

    def before_run(self, runner: Any) -> None:
        """Start the average: from a checkpoint, an earlier fit or the present weights."""
        trainer = runner.trainer
        if self.resume_from is not None and self._loaded is None and runner.iter == 0:
            runner.resume(self.resume_from)
            checkpoint = torch_files.load_torch(self.resume_from)
            hooks = averages_of(trainer)
            found = find_averages(checkpoint, runner.module, hooks)
            self._take(found[hooks.index(self)], for_fit=True)
        self._statistics = estimator(self.precise_bn, class_name(self))
        if self._statistics is not None:
            self._statistics.check_run(runner)
        check_device(self)
        average = self.start(runner.module, goes_on=runner.iter > 0)
        begins = self._begins(runner.iter, trainer.current_epoch)
        if not begins and not self._steps:
            average.tracks = True
        elif average.tracks:  # the fit before ended before averaging began
            self._begin(average)
        self._stop_counting()
        self._applied, self._counted = AppliedSteps(trainer), 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check that nothing else swaps the weights of the module."""
        if averages_of(trainer)[0] is self:
            check_rivals(self, trainer)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin at epoch ``begin_epoch``; average parameters added in the last epoch."""
        self._adopt_parameters(trainer, pl_module)
        average = self._average
        waits = self.begin_epoch > 0 and average is not None and average.tracks
        if waits and trainer.current_epoch >= self.begin_epoch:
            assert average is not None
            self._begin(average)

    def _adopt_parameters(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        average = self._average
        names = [] if average is None or average.module is not module else average.new_parameters()
        if average is not None and names:
            self._repair()
            self._loaded = SavedAverage(Identity.of(self), average.state_dict())
            self.start(module, goes_on=True).tracks = average.tracks
            line = "%s also averages the new %s from now on, beginning with their present values"
            Driver.of(trainer).runner.logger.info(line, class_name(self), listed(names))

    def after_train_iter(self, runner: Any) -> None:
        """Update the average after an optimizer step."""
        average = self._average
        if average is None or self._applied is None:
            return
        counted, self._counted = self._counted, self._applied.made
        if average.tracks:
            if self._begins(runner.iter + 1, runner.trainer.current_epoch):
                self._begin(average)
        elif self._counted != counted:
            if self.updates_at(self._steps):
                average.update(self.get_momentum(runner))
                self._updates += 1
            self._steps += 1

    def _begins(self, iterations: int, epoch: int) -> bool:
        return iterations >= self.begin_iter and epoch >= self.begin_epoch

    def _begin(self, average: ModuleAverage) -> None:
        average.begin()
        self._steps = self._updates = 0

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Estimate the statistics of the average for an export after the run."""
        if self._statistics is not None:
            self._prepare(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the module and the optimizers."""
        self._stop_counting()
        self._statistics = None
        super().teardown(trainer, pl_module, stage)

    def _stop_counting(self) -> None:
        if self._applied is not None:
            self._applied.close()
            self._applied = None


def check_momentum(value: Any) -> None:
    """Raise unless the value is a number in (0, 1).

    Raises:
        TypeError: if it is no number.
        ValueError: if it is out of range.
    """
    check_number("momentum", value)
    if not 0 < value < 1:
        raise ValueError(f"momentum must be in (0, 1), got {value}")


def estimator(precise_bn: Any, user: str | None = None) -> PreciseBNHook | None:
    """Return the hook that estimates an average's BatchNorm statistics, or None.

    Args:
        precise_bn: The argument of every average: False, True, a number of samples, or a dict of
            the arguments of PreciseBNHook.
        user: The class of the average, for messages.

    Raises:
        TypeError: for an argument of another type, or unknown to PreciseBNHook.
        ValueError: for a number below 1, for an interval, and for values refused by PreciseBNHook.

    >>> estimator(False), estimator(True).num_samples, estimator(512).num_samples
    (None, 8192, 512)
    """
    if isinstance(precise_bn, Mapping):
        if "interval" in precise_bn:
            raise ValueError(
                f"precise_bn={dict(precise_bn)}: the statistics are estimated whenever a changed "
                "average is used; leave interval out"
            )
        try:
            found = PreciseBNHook(**precise_bn)
        except (TypeError, ValueError) as error:
            raise type(error)(f"precise_bn={dict(precise_bn)}: {error}") from None
    elif isinstance(precise_bn, bool):
        if not precise_bn:
            return None
        found = PreciseBNHook()
    elif isinstance(precise_bn, int):
        check_int("precise_bn", precise_bn, 1)
        found = PreciseBNHook(precise_bn)
    else:
        raise TypeError(
            "precise_bn must be True, False, a number of samples or a dict of PreciseBNHook's "
            f"arguments, got {precise_bn!r}"
        )
    found.user = user
    return found
