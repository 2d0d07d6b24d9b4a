"""``CheckInvalidLossHook``: detect NaN losses without synchronising the device in every step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerStatus

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.invalid_loss.actions import Action, InvalidLossError
from lightning_hooks.hooks.invalid_loss.loss_history import LossHistory, dump_batch, read
from lightning_hooks.hooks.invalid_loss.rollback import Restore, Stop
from lightning_hooks.hooks.invalid_loss.skip_step import Skip
from lightning_hooks.hooks.invalid_loss.spikes import Spikes
from lightning_hooks.hooks.reached import warn_unless_reached
from lightning_hooks.utils import random_state
from lightning_hooks.utils.arguments import check_count, check_path, shown
from lightning_hooks.utils.nonfinite import any_non_finite, finite_weights

__all__ = ["CheckInvalidLossHook", "InvalidLossError"]

MAX_UNREAD = 10_000
"""The most iterations between two readings: each keeps about 1 kB, and its batch if dumped."""

ACTIONS = {"raise": Action, "stop": Stop, "skip": Skip, "restore": Restore}


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):
    """Acts on a NaN or infinite loss, or on a loss spike, and names the step.

    Every step is checked, yet the device is read once per ``interval``: the losses stay on the
    device and are copied together. Losses and weights are also checked before every checkpoint and
    validation and at the end of the fit, so no file holds a bad step. The message names the first
    bad loss, on all ranks alike, and the bad values in the step's ``log_vars`` (or the numbers
    returned and logged by the step). Values with ``loss`` in the name are components of the loss: a
    bad component makes a step bad, and components replace the loss of a module that steps its
    optimizers itself and returns no loss. Other values may be NaN. The actions:

    =========  ====================================================================================
    action     effect
    =========  ====================================================================================
    raise      ``InvalidLossError``; no checkpoint is written because of this error
    stop       the last good state is restored, and training ends as with ``trainer.should_stop``
    restore    the last good state is restored, and training goes on
    skip       the optimizer's step is skipped, for bad gradients too: weights, buffers and
               optimizer state are as if the batch (with accumulated gradients: all batches of
               that step) had not been there
    =========  ====================================================================================

    *stop*, *restore*: the last good state is the newest full checkpoint of this run, written by any
    callback. Before the first checkpoint, the state is a copy on the devices (weights, optimizer
    state and averages) from the last reading; in a resumed run, that of the file resumed from.
    Averages are restored too and hold no bad step; counters, learning rates and data go on.

    *skip*: the ranks decide together before the step, with one reduction per step. The host reads
    one flag per step, or no flag for optimizers with ``fused=True``. Under
    ``precision="16-mixed"`` the gradient scaler judges the gradients. Learning rates move on after
    a skipped step, and an average takes in the unchanged weights. The log leaves the NaN and
    infinite values of skipped steps out.

    With ``spike`` a loss far above the median of the last good losses of the rank is bad, too. The
    ranks decide about spikes as about NaN, with the same reading. Until ``window`` losses are
    known, also after a resume, no loss is a spike; only the returned loss is looked at.

    ==================  ===========================================================================
    key                 in the log
    ==================  ===========================================================================
    skipped_steps       optimizer steps skipped so far, from the line with the first skip on; a
                        resumed run goes on counting
    ==================  ===========================================================================

    Args:
        interval: Iterations between two readings, at least 1; at most 10,000 iterations are kept
            in memory until a reading.
        action: ``"raise"``, ``"stop"``, ``"skip"`` or ``"restore"``.
        max_skips: Maximum number of consecutive skipped steps; another bad step raises at the next
            reading. None for no limit.
        max_restores: Maximum number of restores in a fit; another bad reading raises. None for no
            limit.
        dump_dir: Directory for the batch and the random state of the first bad step of a reading,
            to repeat the step, see ``load_batch``. The batches of up to ``interval`` steps stay in
            memory: choose a smaller ``interval`` for large batches. None writes nothing.
        spike: A dict of ``window`` (100), the number of losses of the median; ``ratio`` (3.0), to
            the median, above which a loss is a spike; and ``patience`` (1), the number of spikes in
            a row from which on a spike is bad. None for NaN and infinite losses alone.

    Raises:
        ValueError: for arguments out of range; when training starts, for a strategy or optimizer
            whose steps cannot be skipped, and for ``spike`` beside *skip* where the module steps
            several optimizers.
        InvalidLossError: in training.

    Source: mmdetection's ``CheckInvalidLossHook``.

    Note:
        Departures from mmdetection: every step is checked (mmdetection: every ``interval``-th
        step), and each component of the loss (mmdetection: the sum), also under ``python -O``,
        which drops mmdetection's assertion. The weights are checked too: a step may have a good
        loss and bad gradients. All ranks decide together (mmdetection: each rank alone). The
        priority is ``ABOVE_NORMAL`` (mmdetection: ``NORMAL``), before hooks that save.
    """

    priority = "ABOVE_NORMAL"
    """Before the hooks that save: the check comes first."""

    _transient = ("_action", "_saves", "_has_failed", "_weights", "_history", "_ended", "_resumed")
    # for subclasses that do not call super().__init__()
    interval: int = 50
    action: str = "raise"
    max_skips: int | None = 10
    max_restores: int | None = 3
    dump_dir: str | None = None
    spike: Mapping[str, Any] | None = None
    _action: Action | None = None  # set in a fit only, like the attributes below
    _saves: MethodPatch | None = None
    _has_failed = False  # with an InvalidLossError
    _ended: Mapping[str, Any] = MappingProxyType({})  # the counts of the fit that is over
    _resumed: Mapping[str, Any] | None = None  # those of the file that the next run resumes from
    _weights: tuple[torch.Tensor, ...] = ()
    _weights_are_checked = True
    _steps_automatically = True

    def __init__(
        self,
        interval: int = 50,
        action: str = "raise",
        max_skips: int | None = 10,
        max_restores: int | None = 3,
        dump_dir: str | os.PathLike[str] | None = None,
        spike: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_count("interval", interval)
        if not isinstance(action, str) or action not in ACTIONS:
            raise ValueError(f"action must be one of {list(ACTIONS)}, got {shown(action)}")
        check_count("max_skips", max_skips, 0, optional=True)
        check_count("max_restores", max_restores, 0, optional=True)
        self.interval = interval
        self.action = action
        self.max_skips = max_skips
        self.max_restores = max_restores
        self.dump_dir = check_path("dump_dir", dump_dir)
        Spikes.of(spike)  # checks the numbers
        self.spike = spike

    # -- start and end of a fit ------------------------------------------------------------

    @property
    def _writes_files(self) -> bool:
        """Whether the hook writes files: with ``dump_dir``."""
        return self.dump_dir is not None

    @property
    def has_losses(self) -> bool:
        """Whether a step of this fit had a loss."""
        return self._history.has_losses

    def before_run(self, runner: Runner) -> None:
        """Set up the action."""
        if self._action is not None:  # set up by on_train_start, in a run with its own loop
            return
        trainer, fit = runner.trainer, Driver.of(runner.trainer).fit
        self._has_failed = False
        self._steps_automatically = runner.module.automatic_optimization
        by_name = not (self._steps_automatically or runner.hooks_own_step)
        spikes = Spikes.of(self.spike)
        if spikes is not None:
            warn_unless_reached(self, runner, "no loss is a spike", window=spikes.window)
        self._history = LossHistory(self.dump_dir is not None, by_name, spikes)
        self._weights = finite_weights(runner.module)
        self._action = ACTIONS[self.action](self, runner)
        if self._resumed is not None:
            self._action.resume(self._resumed)
        fit.callback(self._end_fit, trainer)
        # files without a callback by Lightning, such as weights-only files, come this way, too
        if self._saves is not None:  # of a fit that has failed
            self._saves.remove()
        save = partial(self._save, runner, trainer.save_checkpoint)
        self._saves = MethodPatch(trainer, "save_checkpoint", instead=save)
        if runner.world_size == 1:  # elsewhere hooks call it on one rank alone
            fit.patch(runner, "save_checkpoint", lambda *a, **k: self._check(runner))

    def _unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the events without use to the action."""
        unused = ["on_train_batch_end"] if self._steps_automatically else []
        if self._action is not None and not self._action.guards_steps:
            unused += ["on_before_backward", "on_before_optimizer_step"]
            unused += ["on_train_batch_start"] if self.dump_dir is None else []
        return unused

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the action, once all averages are made."""
        if self._action is None:  # registered by another hook's before_run
            self.before_run(Driver.of(trainer).runner)
        assert self._action is not None
        self._action.begin()

    def after_run(self, runner: Runner) -> None:
        """Check the last steps, and log a summary."""
        self._check(runner)
        if self._action is not None:
            self._action.report()

    def _end_fit(self, trainer: L.Trainer) -> None:
        """Handle unread steps after an error; go on to refuse files after an invalid loss."""
        action, self._action = self._action, None
        if self._history.iters and action is not None:
            with contextlib.suppress(Exception):  # a second error would hide the first
                bad_weights = any_non_finite(self._weights).to(trainer.lightning_module.device)
                reading = read(self._history.take(), bad_weights, action.flags())
                action.count(reading.flags)
                action.after_error(reading)
        if action is not None:  # an error's file may come later
            self._ended = action.state()
        if self._saves is not None and not self._has_failed:
            self._saves.remove()
        self._weights, self._history = (), LossHistory()

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the counts of the action."""
        state = self._ended if self._action is None else self._action.state()
        if state:  # equal for all hooks with the action
            file.own_part["skips"] = {**state}

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Keep the counts for the run that goes on."""
        if file.resumes:
            self._resumed = file.own_part.get("skips", {})
            Driver.of(file.trainer).fit.callback(vars(self).pop, "_resumed", None)

    # -- each step -------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep the state to undo the step, and the batch to repeat the step."""
        assert self._action is not None
        self._action.before_batch()
        if self.dump_dir is not None:
            self._history.batch, self._history.rng_state = batch, random_state.get_rng_state()

    def on_before_backward(
        self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor
    ) -> None:
        """Pass each loss of a step to the action."""
        assert self._action is not None
        self._action.before_backward(loss)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Skip a bad step."""
        assert self._action is not None
        self._action.before_step(optimizer, Driver.of(trainer).runner.iter)

    def after_train_iter(self, runner: Runner) -> None:
        """Keep the step's loss; read all kept losses at every ``interval``-th iteration."""
        iteration = runner.iter
        self._history.record(runner, iteration)
        if not (self._steps_automatically or self.spike is None or self.action == "skip"):
            self._say_if_without_loss(runner)
        # without automatic optimization the step is not over: on_train_batch_end reads
        is_due = (iteration + 1) % self.interval == 0 or self._history.iters >= MAX_UNREAD
        if is_due and self._steps_automatically:
            self._check(runner, at_interval=True)

    def _say_if_without_loss(self, runner: Runner) -> None:
        """Say that nothing is judged as a spike where ``training_step`` returns no loss."""
        if not isinstance(runner.outputs.get("loss"), torch.Tensor):
            runner.warn_once(
                f"{type(self).__name__}: no loss is a spike, because training_step of "
                f"{type(runner.module).__name__} returns none; let it return the loss to watch"
            )

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Read after the step, where hooks or the module itself step the optimizer."""
        runner = Driver.of(trainer).runner
        if self.every_n_iters(runner, self.interval) or self._history.iters >= MAX_UNREAD:
            self._check(runner, at_interval=True)

    # -- the check -------------------------------------------------------------------------

    def after_train_epoch(self, runner: Runner) -> None:
        """Check before others save, or evaluate with an average."""
        self._check(runner)

    before_val_epoch = after_train_epoch

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check before a validation in a run without epochs."""
        if self._action is not None:
            self._check(Driver.of(trainer).runner)

    @property
    def _refuses_files(self) -> bool:
        """Whether an invalid loss has ended the fit."""
        return self._has_failed

    def _save(
        self, runner: Runner, save: Callable[..., None], filepath: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Write a checkpoint after a check; write nothing because of an invalid loss."""
        state = runner.trainer.state
        is_interrupted = state.status == TrainerStatus.INTERRUPTED and state.stage is not None
        if self._has_failed and (self._action is not None or is_interrupted):
            return
        if self._action is not None:
            # a callback before the hooks may save an unrecorded step
            if progress.batch_ends(runner.trainer):
                self._history.record(runner, runner.iter)
            self._check(runner)
        elif self._saves is not None:  # the failed fit is over
            self._saves.remove()
        save(filepath, *args, **kwargs)
        weights_only = kwargs.get("weights_only", args[0] if args else False)
        if self._action is not None and not weights_only:
            self._action.on_saved(filepath)

    def _check(self, runner: Runner, at_interval: bool = False) -> None:
        """Read the kept losses and act, on all ranks together."""
        action, history = self._action, self._history
        is_known = not history.iters and (self._weights_are_checked or at_interval)
        if action is None or is_known:
            return
        # between two batches weights need no check: bad weights show in the next loss
        self._weights_are_checked = not at_interval or action.keeps_state
        weights = self._weights if self._weights_are_checked else ()
        reading = read(
            history.take(),
            any_non_finite(weights).to(runner.module.device),
            action.flags(),
            rank=runner.rank,
            ranks=runner.world_size,
        )
        action.count(reading.flags)
        bad_step = None if self.dump_dir is None else action.first_bad_step(reading)
        if bad_step is not None and runner.may_write:
            dump_batch(bad_step, self.dump_dir or ".", runner)
        try:
            action.handle(reading, at_interval)
        except InvalidLossError:
            self._has_failed = True
            raise
