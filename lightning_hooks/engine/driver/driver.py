"""``Driver``: Lightning's events become the ten points, for all hooks of a Trainer at once.

The rule that matters: Lightning validates *inside* the training epoch. So ``after_train_epoch``
is called at the start of the validation that ends the epoch, in train mode and with gradients
on, else at ``on_train_epoch_end``. Validation in mid-epoch does not close the epoch, the sanity
check and stand-alone ``validate``, ``test`` and ``predict`` call nothing.

=====================  ==========================================================================
point                  Lightning's event
=====================  ==========================================================================
before_run             on_train_start
before_train_epoch     on_train_epoch_start; on_train_start when resumed inside an epoch
before_train_iter      on_train_batch_start
after_train_iter       on_train_batch_end; hooks that own backward, inside training_step
after_train_epoch      on_validation_start if that validation ends the epoch, else
                       on_train_epoch_end
before_val_epoch       on_validation_start
before/after_val_iter  on_validation_batch_start, on_validation_batch_end
after_val_epoch        on_validation_end, where the epoch's metrics are known
after_run              on_train_end
=====================  ==========================================================================

On several ranks each needs at least one of these hooks, which may differ: what hooks decide for
themselves (``runner.should_stop``) is settled by all ranks together after each iteration, where a
hook that is not ours is on one of them when an epoch begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver import resume
from lightning_hooks.engine.driver.batch_events import batch_end, batch_start
from lightning_hooks.engine.driver.calls import Calls
from lightning_hooks.engine.driver.hook_buffers import HookBuffers
from lightning_hooks.engine.driver.model_replacement import ModelWatch
from lightning_hooks.engine.driver.ownership import Ownership, is_ours, trains_like_mmcv
from lightning_hooks.engine.driver.step_capture import (
    TrainingStep,
    bound_log_buffer,
    feed_log_buffer,
    log_validation,
)
from lightning_hooks.engine.driver.train_data import Iteration, what_repeats
from lightning_hooks.engine.hook_order import check_wishes
from lightning_hooks.engine.lightning_api import data, progress, validation
from lightning_hooks.engine.participant import (
    Participant,
    Settings,
    each_once,
    host,
    merge,
    mute,
    unmute,
)
from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.engine.runner.iter_runner import IterRunner
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.default_logger import default_logger
from lightning_hooks.utils.fsdp import state_here

__all__ = ["Driver"]


class Driver(Callback):
    """The one callback that calls the hooks; it stands before the first participant."""

    state_key = "Driver"
    """Lightning asks for it at each event; a property would be a call more."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._hosted: list[Any] = []  # the hooks of adapters that are in trainer.callbacks too
        self._in_run = self._in_epoch = self._failed = False
        self._first_iter: int | None = None
        self._run_loader: Any = None  # what a hook has set in before_run
        self._val_data: Any = None  # what a hook has replaced for one validation
        self._iteration = Iteration()
        self._resumed = resume.ResumeState()
        self._buffers = HookBuffers()

    @property
    def runner(self) -> Runner:
        """What the hooks see; there from the first fit's setup on."""
        if self._runner is None:
            raise RuntimeError("there is no runner before Trainer.fit()")
        return self._runner

    @property
    def ownership(self) -> Ownership:
        """Who owns backward in this fit."""
        return self._ownership

    @staticmethod
    def of(trainer: L.Trainer, stage: str = "fit") -> Driver:
        """Return the Trainer's driver; the first call puts one into its callbacks."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            if isinstance(callback, Driver):
                return callback
        driver = Driver()
        first = next(i for i, c in enumerate(callbacks) if isinstance(c, Participant))
        # a new list: Lightning is iterating over the old one, and will not set this one up
        trainer.callbacks = [*callbacks[:first], driver, *callbacks[first:]]  # type: ignore[attr-defined]
        driver.setup(trainer, trainer.lightning_module, stage)
        return driver

    @staticmethod
    def work_dir(trainer: L.Trainer) -> str:
        """Return where the Trainer's hooks write, before the first fit too."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            if isinstance(callback, Driver) and callback._runner is not None:
                return callback._runner.work_dir
        participants = [c for c in callbacks if isinstance(c, Participant)]
        return _work_dir(trainer, merge([participant.settings() for participant in participants]))

    def _participants(self, trainer: L.Trainer) -> list[Participant]:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        return [callback for callback in callbacks if isinstance(callback, Participant)]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run behind: a copy is the driver of another Trainer, or process."""
        return {**Driver().__dict__, "_hosted": self._hosted}

    # -- before the run --------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Collect the hooks of all participants and get ready for a fit."""
        self._buffers.listen(pl_module)
        given = [
            participant
            for participant in self._participants(trainer)
            if not any(participant is hook for hook in self._hosted)
        ]
        self._wishes = merge([participant.settings() for participant in given])
        self._entries = each_once(
            [entry for participant in given for entry in participant.entries()]
        )
        host(trainer, [hook for hook, _ in self._entries], self._hosted, stage)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        runner = self.prepare(trainer, pl_module)
        self._failed = False
        self._ownership = Ownership(runner, self._wishes.owns_backward)
        self._ownership.take()
        self._step = TrainingStep(runner, self._calls, self._ownership)
        mute([self, *self._participants(trainer)])

    def prepare(self, trainer: L.Trainer, pl_module: L.LightningModule) -> Runner:
        """Return the runner with the hooks of all participants, for a fit or an evaluation."""
        wishes = self._wishes
        if self._runner is None:
            self._runner = wishes.runner or _make_runner(trainer, pl_module, wishes)
            assert self._runner is not None
            self._calls = Calls(self._runner)
        runner = self._runner
        runner.hooks.on_change = self._note_hooks
        runner.on_model_change = self._note_model
        runner.attach(pl_module, wishes.model(pl_module) if wishes.model else None)
        self._model = ModelWatch(runner)
        if wishes.meta is not None:
            runner.meta = {**wishes.meta}
        for name, value in (wishes.attributes or {}).items():
            setattr(runner, name, value)
        self._has_timestamp = "timestamp" in (wishes.attributes or {})
        runner.hooks.clear()
        for hook, priority in self._entries:
            runner.register_hook(hook, priority)
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        check_wishes(runner.hooks, callbacks, callbacks.index(self))
        return runner

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Be the run that is resumed, with its random state before the first iterator is made."""
        self.runner.run_id = self._resumed.run(self.runner.run_id)
        self._resumed.restore_rng(trainer.global_rank)
        self._iteration.watch(trainer, self._hooks_may_change_data())

    # -- the run ---------------------------------------------------------------------------

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``before_run``."""
        self._iteration.unwatch(trainer)
        self._buffers.stop_listening()
        progress.leave_resumed_epoch(trainer)
        runner, saved = self.runner, self._resumed.state or {}
        runner.run_id = self._resumed.run(runner.run_id)  # of shards it is known by now only
        runner.renew()
        runner.mode = None
        runner._stop_requested = False
        runner._iter = saved.get("iter", progress.batches_processed(trainer))
        runner.steps_before = 0
        if not self._has_timestamp:
            runner.timestamp = self._resumed.timestamp(runner.timestamp)
        mid_epoch = progress.is_resuming_mid_epoch(trainer)
        self._in_epoch = mid_epoch and saved.get("in_epoch", not progress.is_last_batch(trainer))
        runner._inner_iter = progress.batch_idx(trainer) if self._in_epoch else 0
        if isinstance(runner, IterRunner):
            runner.last_val_iter = saved.get("last_val_iter", runner.iter)
        if isinstance(runner, EpochRunner):
            # resumed from inside the validation that ends an epoch: it is closed already
            closed = mid_epoch and not self._in_epoch
            runner._closed_epoch = trainer.current_epoch if closed else None
        if self._resumed:
            runner.meta = {**self._resumed.meta, **(runner.meta or {})}
            if "hook_msgs" in self._resumed.meta:
                runner.meta["hook_msgs"] = self._resumed.meta["hook_msgs"]
        if self._resumed and mid_epoch and not progress.is_last_batch(trainer):
            told = what_repeats(trainer)
            if told:
                runner.logger.warning("%s", told)
        self._ownership.start()
        self._in_run = True
        self._calls.capture_flags()
        runner.announce()
        self._model.guard()
        keys = self._buffers.keys(pl_module)
        runner.common_dialects = self._calls.common_dialects()
        self._model.takes_at_once = True  # the hooks that come later keep its parameters
        self._calls.now("before_run")
        self._model.takes_at_once = False
        self._buffers.added(pl_module, keys)
        shown = (self._wishes.attributes or {}).get("data_loader")
        if shown is not None and runner.__dict__.get("_new_data_loader") is shown:
            del runner._new_data_loader  # for before_run alone, as one set before mmcv's run()
        self._run_loader = runner.__dict__.get("_new_data_loader")
        host(trainer, list(runner.hooks), self._hosted, "fit")  # what a hook has registered
        mute([self, *self._participants(trainer)])
        self._step.listen()
        self._calls.ask_ranks()
        self._first_iter = runner.iter
        resumed = self._resumed  # which is forgotten where the data begins
        if isinstance(runner, IterRunner):
            self._begin_run_by_iter()
        elif self._in_epoch:
            self._begin_epoch(synthesised=True)
        resumed.restore_log_buffer(runner)  # loggers clear it when an epoch begins

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``before_train_epoch``."""
        self._calls.ask_ranks()  # a hook may have been registered in the epoch before
        self._renew_events()
        if isinstance(self.runner, EpochRunner):
            self._begin_epoch()
        else:
            self.runner.renew()
            bound_log_buffer(self.runner)
            self._restore_rng()
            self._take_data()

    def _begin_epoch(self, synthesised: bool = False) -> None:
        runner = self.runner
        assert isinstance(runner, EpochRunner)
        runner.mode = "train"
        runner._own_max_iters = None
        runner.renew()
        if trains_like_mmcv(runner.module):
            runner.module.train()
        bound_log_buffer(runner)
        self._restore_rng()
        with _weights_kept(runner.module) if synthesised else contextlib.nullcontext():
            self._calls.now("before_train_epoch")
        self._in_epoch = True
        runner._inner_iter = None
        self._calls.capture_flags()
        self._take_data()

    def _begin_run_by_iter(self) -> None:
        runner = self.runner
        assert isinstance(runner, IterRunner)
        runner.begin_run()
        trainer = runner.trainer
        here = progress.is_resuming_mid_epoch(trainer) and not progress.is_last_batch(trainer)
        if here:
            self._restore_rng()
        self._calls.now("before_epoch")
        self._in_epoch = True
        if here or not self._resumed:  # else the pass that goes on begins with its own event
            self._take_data()

    def _hooks_may_change_data(self) -> bool:
        points = ("before_run", "before_train_epoch")
        return not all(is_ours(hook) for point in points for hook, _ in self._calls.at[point])

    def _restore_rng(self) -> None:
        """Forget the numbers drawn since on_fit_start: the uninterrupted run did not draw them."""
        trainer = self.runner.trainer
        if self._resumed:
            self._iteration.leave_pass(trainer)
        anew = self._iteration.can_renew(trainer, resumed=True) or progress.iterates_anew(trainer)
        if self._resumed and (anew or data.goes_on_in_pass(trainer)):
            self._resumed.restore_rng(trainer.global_rank)

    def _take_data(self) -> None:
        if self._resumed:
            self._resumed.restore_generators(self.runner)
        runner = self.runner
        new = runner.__dict__.get("_new_data_loader")
        self._iteration.begin_epoch(
            runner,
            for_run=isinstance(runner, IterRunner) or new is self._run_loader,
            resumed=bool(self._resumed),
            hooks_may_change_data=self._hooks_may_change_data(),
        )
        if self._resumed and data.goes_on_in_pass(runner.trainer):
            self._resumed.restore_rng(runner.rank)
            self._resumed.restore_generators(runner)
        runner.renew()  # the loader may be another one
        self._resumed = resume.ResumeState()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Make ``before_train_iter`` of the batches to come, and call it."""
        if self._first_iter is not None:
            # Lightning has by now counted a batch at whose end the checkpoint was written
            self.runner._iter, self._first_iter = self._first_iter, None
        if self._model.is_assigned:
            self._model.take()
        event = batch_start(self.runner, self._calls, self._ownership)
        self.__dict__["on_train_batch_start"] = event  # Lightning asks no more where it is None
        if event is not None:
            event(trainer, pl_module, batch, batch_idx)
        else:
            self._calls.put_right()  # what was changed since the epoch began, at no point of it

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Make ``after_train_iter`` of the batches to come, and call it."""
        event = batch_end(self.runner, self._calls, self._ownership, self._step)
        self.__dict__["on_train_batch_end"] = event
        if event is not None:
            event(trainer, pl_module, outputs, batch, batch_idx)

    def _renew_events(self) -> None:
        """Have the events of a batch made anew: the hooks are others now, or nobody's."""
        for name in ("on_train_batch_start", "on_train_batch_end"):
            self.__dict__.pop(name, None)

    def _note_hooks(self) -> None:
        self._calls.at.clear()
        self._renew_events()
        if self._in_run:
            self._model.guard()
            self._step.listen()

    def _note_model(self) -> None:
        self._model.is_assigned = True
        self._renew_events()
        if self._model.takes_at_once:
            # it may be there for a moment only; if it stays, the next step says what is wrong
            with contextlib.suppress(TypeError, RuntimeError):
                self._model.take()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_train_epoch`` if this validation ends the epoch; ``before_val_epoch``."""
        if not self._in_fit_validation(trainer):
            return
        runner = self.runner
        if isinstance(runner, IterRunner):
            runner.mode = "val"
            return
        if self._in_epoch and progress.epoch_is_over(trainer):
            validation.train_as_before_validation(trainer)
            with torch.enable_grad():
                self._close_epoch()
            validation.evaluate_as_before(trainer)
        if not runner.validates_again:  # else it is that of the validation before, as in mmcv
            runner._inner_iter = progress.batch_idx(trainer)
        runner.mode = "val"
        self._calls.now("before_val_epoch")
        if self._model.is_assigned:
            self._model.take()
        new = runner.__dict__.get("_new_val_loader")
        if new is not None:
            self._val_data = validation.replace_val_loader(trainer, new)

    def _close_epoch(self) -> None:
        runner = self.runner
        assert isinstance(runner, EpochRunner)
        runner.end_epoch()
        self._calls.now("after_train_epoch")
        self._in_epoch = False
        runner._closed_epoch = runner.trainer.current_epoch
        self._calls.settle_stop()

    def on_validation_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """``before_val_iter``."""
        if self._in_fit_validation(trainer):
            self.runner._inner_iter = batch_idx
            event = self._calls.at_batch("before_val_iter", self._calls.at["before_val_iter"])
            event(trainer, pl_module, batch, batch_idx)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """``after_val_iter``."""
        if self._in_fit_validation(trainer):
            runner = self.runner
            runner.take_result(outputs)
            if "log_vars" in runner.outputs:
                feed_log_buffer(runner, runner.outputs)
            shown = getattr(runner, "data_batch", None)  # a hook may have put another one there
            event = self._calls.at_batch("after_val_iter", self._calls.at["after_val_iter"])
            event(trainer, pl_module, shown, batch_idx)
            del runner.data_batch

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_val_epoch``; in mid-epoch training goes on."""
        if not self._in_fit_validation(trainer):
            return
        runner = self.runner
        self._restore_val_data(trainer)
        if isinstance(runner, IterRunner):
            runner.last_val_iter = runner.iter
            log_validation(runner, self._calls.at["after_val_epoch"])
            return
        runner.log_buffer.update(validation.val_metrics(trainer))
        self._calls.now("after_val_epoch")
        if self._in_epoch:
            runner.mode = "train"
            runner._inner_iter = None
        self._calls.settle_stop()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_train_epoch``, unless a validation has ended the epoch."""
        if isinstance(self.runner, EpochRunner):
            if self._in_epoch:
                self._close_epoch()
            self._iteration.end_epoch(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_run``."""
        runner = self.runner
        if isinstance(runner, IterRunner):
            runner.end_run()
            self._calls.now("after_epoch")
        self._calls.now("after_run")
        self._in_run = False

    # -- after the run ---------------------------------------------------------------------

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Give the module back as it was; an error here would hide the one that is raised."""
        self._failed = True
        with contextlib.suppress(Exception):
            self._buffers.stop_listening(saving=True)
            self._undo(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Give the module and the callbacks back as they were."""
        self._buffers.stop_listening(saving=True)
        self._undo(trainer)

    def _restore_val_data(self, trainer: L.Trainer) -> None:
        if self._val_data is not None:
            validation.restore_val_data(trainer, self._val_data)
            self._val_data = None
            self.runner.__dict__.pop("_new_val_loader", None)

    def _undo(self, trainer: L.Trainer) -> None:
        self._in_run = False
        self._renew_events()
        self._iteration.end_epoch(trainer)
        self._restore_val_data(trainer)
        self._iteration.unwatch(trainer)
        if hasattr(self, "_step"):  # there was a fit
            self._step.stop_listening()
            self._model.unguard()
            self._ownership.release()
        unmute([self, *self._participants(trainer)])

    def _in_fit_validation(self, trainer: L.Trainer) -> bool:
        fitting = trainer.state.fn == TrainerFn.FITTING
        return self._in_run and fitting and not trainer.sanity_checking

    # -- checkpoints -----------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write the run's counters, mmcv's meta and the random states."""
        if self._runner is not None:
            resume.write(checkpoint, self._runner, in_epoch=self._in_epoch, alone=self._failed)
            self._buffers.take_out(pl_module, checkpoint)  # here too: it may be after the fit

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep what a checkpoint says until the run starts; a validation from one starts none."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._resumed.load(checkpoint)


def _make_runner(trainer: L.Trainer, module: L.LightningModule, wishes: Settings) -> Runner:
    kind = IterRunner if wishes.by_epoch is False else EpochRunner
    logger = default_logger(trainer.global_rank)
    return kind(trainer, module, _work_dir(trainer, wishes), logger)


def _work_dir(trainer: L.Trainer, wishes: Settings) -> str:
    work_dir = wishes.work_dir or trainer.default_root_dir
    return work_dir if "://" in work_dir else os.path.abspath(work_dir)


@contextlib.contextmanager
def _weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """Put parameters and buffers back as they are now.

    For a ``before_train_epoch`` that is called again for an epoch already begun: a hook that
    swaps weights there has swapped them before.
    """
    before = {
        name: value.detach().clone()
        for name, value in state_here(module).items()
        if isinstance(value, torch.Tensor)
    }
    yield
    with torch.no_grad():
        for name, value in state_here(module).items():
            if name in before and isinstance(value, torch.Tensor):
                value.copy_(before[name])
