"""``CheckInvalidLossHook``: no NaN goes unseen, and none costs a synchronisation per step."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.lightning_api.unused_events import skip_events
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.invalid_loss.actions import Action, InvalidLossError, action_of
from lightning_hooks.hooks.invalid_loss.batch_dump import dump_batch
from lightning_hooks.hooks.invalid_loss.loss_history import LossRecord, Step, read
from lightning_hooks.hooks.invalid_loss.save_interceptor import SaveGuard
from lightning_hooks.utils import random_state
from lightning_hooks.utils.arguments import check_path
from lightning_hooks.utils.nonfinite import any_non_finite, finite_weights

__all__ = ["CheckInvalidLossHook", "InvalidLossError"]

ACTIONS = ("raise", "stop", "skip", "restore")


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):
    """Acts when the loss of a step is NaN or infinite, and says which step it was.

    Every step counts, yet the device is read once per ``interval``: the losses are kept where they
    are, and stacked and copied together. They are read also before every checkpoint and validation
    and at the end of the fit, with a look at the weights: no file holds a bad step. What is said
    names the first bad loss, on all ranks alike, and of the values in its ``log_vars`` (or the
    numbers that the step returned and logged) those that are bad. Those with ``loss`` in their name
    are components, which make a step bad as the loss itself does; other values may be NaN. Then:

    =========  ====================================================================================
    action     what happens
    =========  ====================================================================================
    raise      ``InvalidLossError``; what others would save because of it is not written
    stop       the last good state is put back, and training ends as with ``trainer.should_stop``
    restore    the last good state is put back, and training goes on
    skip       the optimizer's step is not made, for bad gradients too: weights, buffers and
               optimizer state are as if the batch (with accumulated gradients: all batches of
               that step) had not been there
    =========  ====================================================================================

    *stop*, *restore*: the last good state is that of the newest full checkpoint written in this
    run, by whomever; until there is one, that of the last reading, of which a copy is kept on the
    devices (weights, optimizer state and averages once more). Averages go back with it and hold
    no bad step; counters, learning rates and data go on.

    *skip*: decided before the step, on all ranks alike, with one reduction per step where there
    are several. Nothing is read for optimizers with ``fused=True``; for others the host reads one
    flag per step. Under ``precision="16-mixed"`` gradients are the gradient scaler's to judge.
    A skipped step counts as a step elsewhere: learning rates move on, and an average takes in the
    unchanged weights once more, which does it no harm.

    ==================  ===========================================================================
    key                 in the log
    ==================  ===========================================================================
    skipped_steps       optimizer steps skipped so far, at each reading once there are any
    ==================  ===========================================================================

    Args:
        interval: Iterations from one reading to the next, at least 1.
        action: ``"raise"``, ``"stop"``, ``"skip"`` or ``"restore"``.
        max_skips: Optimizer steps skipped one after the other that are put up with; one more
            raises, at the next reading. None for no limit.
        max_restores: How often a fit goes back to its last good state; once more raises. None
            for no limit.
        dump_dir: Where the batch of the first bad step of a reading is written, with what is
            needed to run it again
            (:func:`~lightning_hooks.hooks.invalid_loss.batch_dump.load_batch`). For that the
            batches of up to ``interval`` steps are kept where they are, and the random state before
            each: choose a smaller interval where that is too much memory. None for no files, and
            nothing kept.

    Raises:
        ValueError: for arguments out of range; when training starts, for a strategy or optimizer
            whose steps cannot be skipped.
        InvalidLossError: in training.

    Source: mmdetection's ``CheckInvalidLossHook``.

    Note:
        Departures from mmdetection: every step is checked (there: every ``interval``-th, the
        others are missed), and each component of its loss (there: their sum), also with
        ``python -O``, which drops its assertion. The weights are looked at too: a step may have a
        good loss and bad gradients. All ranks decide as one (there: each for itself). The priority
        is ``ABOVE_NORMAL`` (there: ``NORMAL``), so that hooks that save come later.
    """

    priority = "ABOVE_NORMAL"
    """Before the hooks that save: a checkpoint of the step that is checked waits for it."""

    # for subclasses that do not call super().__init__()
    interval: int = 50
    action: str = "raise"
    max_skips: int | None = 10
    max_restores: int | None = 3
    dump_dir: str | None = None
    _action: Action | None = None
    _listening: tuple[MethodPatch, ...] = ()
    _looked = True
    _steps_are_made = True
    _guard: SaveGuard | None = None
    _weights: tuple[torch.Tensor, ...] = ()

    def __init__(
        self,
        interval: int = 50,
        action: str = "raise",
        max_skips: int | None = 10,
        max_restores: int | None = 3,
        dump_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if type(interval) is not int or interval < 1:
            raise ValueError(f"interval must be an int of at least 1, got {interval!r}")
        if not isinstance(action, str) or action not in ACTIONS:
            raise ValueError(f"action must be one of {list(ACTIONS)}, got {action!r}")
        for name, limit in (("max_skips", max_skips), ("max_restores", max_restores)):
            if limit is not None and (type(limit) is not int or limit < 0):
                raise ValueError(f"{name} must be an int of at least 0 or None, got {limit!r}")
        self.interval = interval
        self.action = action
        self.max_skips = max_skips
        self.max_restores = max_restores
        self.dump_dir = check_path("dump_dir", dump_dir)

    # -- the run ---------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Get ready; leave out the events of each batch that are not needed."""
        self._close()
        trainer = runner.trainer
        self._record = LossRecord(keep_batches=self.dump_dir is not None)
        self._weights = finite_weights(runner.module)
        self._action = action_of(self, runner)
        before, after = partial(self._before_save, runner), self._action.note_file
        self._guard = SaveGuard(trainer, before, after)
        if runner.world_size == 1:  # elsewhere hooks call it on one rank alone
            look = MethodPatch(runner, "save_checkpoint", lambda *a, **k: self._check(runner))
            self._listening = (look,)
        self._steps_are_made = runner.module.automatic_optimization
        unused = {
            "on_train_batch_start": not (self._needs_each_batch() or self._action.keeps),
            "on_before_backward": not self._action.skips,
            "on_before_optimizer_step": not self._action.skips,
            "on_train_batch_end": self._steps_are_made,
        }
        skip_events(self, CheckInvalidLossHook, *[name for name in unused if unused[name]])

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep what is needed to undo the step, or to run it again."""
        if self._action is None:  # another hook has registered it in its own before_run
            self.before_run(Driver.of(trainer).runner)
        assert self._action is not None
        self._action.before_batch()
        if self.dump_dir is not None:
            self._record.batch, self._record.rng_state = batch, random_state.get_rng_state()
        if self._action.keeps and not self._needs_each_batch():
            skip_events(self, CheckInvalidLossHook, "on_train_batch_start")  # it was for the first

    def _needs_each_batch(self) -> bool:
        return self.dump_dir is not None or (self._action is not None and self._action.skips)

    def on_before_backward(
        self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor
    ) -> None:
        """Note each loss that a step is made of."""
        assert self._action is not None
        self._action.before_backward(loss)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Skip a step that is bad."""
        assert self._action is not None
        self._action.before_step(optimizer, Driver.of(trainer).runner.iter)

    def after_train_iter(self, runner: Any) -> None:
        """Keep the step's loss; read all that are kept at every ``interval``-th iteration."""
        iteration = runner.iter
        self._record.note(runner, iteration)
        # within training_step hooks that own backward may have yet to make their step
        if (iteration + 1) % self.interval == 0 and self._steps_are_made:
            self._check(runner, at_interval=True)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Read, where steps are made by hooks or by the module itself."""
        runner = Driver.of(trainer).runner
        if self.every_n_iters(runner, self.interval):
            self._check(runner, at_interval=True)

    def after_train_epoch(self, runner: Any) -> None:
        """Read before others save, or evaluate with an average."""
        self._check(runner)

    before_val_epoch = after_train_epoch

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read before a validation where there are no epochs."""
        if self._action is not None:
            self._check(Driver.of(trainer).runner)

    def after_run(self, runner: Any) -> None:
        """Read what is left."""
        self._check(runner)
        if self._action is not None:
            self._action.report()

    # -- the reading -----------------------------------------------------------------------

    def _check(self, runner: Any, at_interval: bool = False) -> None:
        """Read and act, on all ranks together."""
        action = self._action
        if action is None:
            return
        if not self._record.iters and (self._looked or at_interval):
            return  # nothing has happened since
        # between two batches bad weights need not be looked for: the next loss shows them
        self._looked = look = not at_interval or action.keeps
        reading = read(
            self._record.take(),
            self._spoilt(runner.module, self._weights if look else ()),
            action.flags(),
            rank=runner.rank,
            ranks=runner.world_size,
        )
        bad = action.bad_step(reading)
        if bad is not None and self.dump_dir is not None:
            self._dump(bad, runner)
        action.settle(reading, at_interval)

    def _spoilt(self, module: L.LightningModule, weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return any_non_finite(weights).to(module.device)

    def _dump(self, step: Step, runner: Any) -> None:
        assert self.dump_dir is not None
        try:
            path = dump_batch(step, self.dump_dir, runner.rank)
        except Exception as error:  # the disk is full: what is wrong with the loss matters more
            runner.logger.warning("the batch of iter %d could not be written: %r", step.iter, error)
        else:
            runner.logger.warning("the batch of iter %d is in %s", step.iter, path)

    def _before_save(self, runner: Any) -> None:
        """Read before a checkpoint is written, by whomever."""
        trainer = runner.trainer
        has_run = progress.batches_processed(trainer) > progress.batch_counts(trainer).completed
        if has_run:  # and perhaps not been noted: a callback before the hooks is saving
            self._record.note(runner, runner.iter)
        self._check(runner)

    # -- the end ---------------------------------------------------------------------------

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Leave no trace; what was not read yet is only put right: an error hides the first."""
        with contextlib.suppress(Exception):
            if self._record.iters and self._action is not None:
                steps = self._record.take()
                self._action.after_error(read(steps, self._spoilt(pl_module, self._weights)))
        with contextlib.suppress(Exception):
            guard, self._guard = self._guard, None
            self._close()
            if guard is not None and isinstance(exception, InvalidLossError):
                guard.refuse()  # and then it removes itself
            elif guard is not None:
                guard.remove()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Give Trainer and optimizers back as they were."""
        self._close()

    def _close(self) -> None:
        for one in (self._guard, *self._listening):
            if one is not None:
                one.remove()
        if self._action is not None:
            self._action.close()
        self._action, self._guard, self._listening, self._weights = None, None, (), ()
        self._record = LossRecord()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to a run."""
        state = super().__getstate__()
        return {k: v for k, v in state.items() if not k.startswith("_") or k == "_plain_arguments"}
