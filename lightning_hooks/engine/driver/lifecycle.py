"""Prepare the driver for a fit, restore the module after it, and carry it in checkpoints."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus

from lightning_hooks.engine.driver import resume
from lightning_hooks.engine.driver.calls import Calls
from lightning_hooks.engine.driver.collect import (
    HostedHooks,
    callbacks_of,
    make_runner,
    participants_of,
    work_dir_of,
)
from lightning_hooks.engine.driver.epoch_cycle import EpochCycle, cycle_of
from lightning_hooks.engine.driver.hook_buffers import HookBuffers
from lightning_hooks.engine.driver.model_replacement import ModelWatch
from lightning_hooks.engine.driver.ownership import Ownership
from lightning_hooks.engine.driver.step_capture import StepCapture
from lightning_hooks.engine.driver.train_data import TrainData
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hook_order import check_order
from lightning_hooks.engine.lightning_api.events import restore_events
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.participant import Participant, each_once, merge_options
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage.checkpoint_io import check_layout

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DriverLifecycle"]


class DriverLifecycle(Callback):
    """The part of the driver before and after a run; it collects the hooks of all participants."""

    state_key = "Driver"
    """A constant, as Lightning reads it at each event."""

    _runner: Runner  # from the first fit on
    # of the fit that goes on, or of the last one
    _ownership: Ownership
    _step: StepCapture
    _cycle: EpochCycle

    def __init__(self) -> None:
        self._epoch_end: MethodPatch | None = None
        self._had_fit = False  # whether the three attributes above are set
        self._hosted = HostedHooks()
        self._in_run = self._failed = False
        self._train_data = TrainData()
        self._resumed = resume.ResumeState()
        self._buffers = HookBuffers()
        self._own_io: CheckpointIO | None = None

    @property
    def runner(self) -> Runner:
        """The runner that the hooks see.

        Raises:
            RuntimeError: before the first fit.
        """
        if not self._has_runner:
            raise RuntimeError("there is no runner before Trainer.fit()")
        return self._runner

    def runner_for(self, trainer: L.Trainer, module: L.LightningModule) -> Runner:
        """Return the runner, which an evaluation before the first fit makes."""
        return self._runner if self._is_of(trainer) else self.prepare(trainer, module)

    @property
    def _has_runner(self) -> bool:
        return hasattr(self, "_runner")

    def _is_of(self, trainer: L.Trainer) -> bool:
        """Whether the runner is this Trainer's; a driver may be given to another one."""
        return self._has_runner and self._runner.trainer is trainer

    @property
    def ownership(self) -> Ownership:
        """The owner of backward in this fit."""
        return self._ownership

    @classmethod
    def of(cls, trainer: L.Trainer, stage: str = "fit") -> Self:
        """Return the Trainer's driver; the first call puts one into its callbacks."""
        callbacks = callbacks_of(trainer)
        for callback in callbacks:
            if isinstance(callback, cls):
                return callback
        driver = cls()
        first = next(i for i, c in enumerate(callbacks) if isinstance(c, Participant))
        # a new list: Lightning is iterating over the old one, and will not set this one up
        trainer.callbacks = [*callbacks[:first], driver, *callbacks[first:]]  # type: ignore[attr-defined]
        driver.setup(trainer, trainer.lightning_module, stage)
        return driver

    @classmethod
    def work_dir(cls, trainer: L.Trainer) -> str:
        """Return the directory that the Trainer's hooks write to, before the first fit too."""
        for callback in callbacks_of(trainer):
            if isinstance(callback, cls) and callback._is_of(trainer):
                return callback._runner.work_dir
        return work_dir_of(trainer, merge_options([p.options() for p in participants_of(trainer)]))

    @staticmethod
    def entries_of(trainer: L.Trainer) -> list[tuple[Any, int]]:
        """Return the hooks of all participants with their priorities, before the first fit too."""
        return [entry for one in participants_of(trainer) for entry in one.entries()]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run behind: a copy is the driver of another Trainer, or process."""
        return {**vars(type(self)()), "_hosted": self._hosted}

    # -- before the run --------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Collect the hooks of all participants and get ready for a fit.

        Raises:
            RuntimeError: if another Trainer's fit with one of the hooks is running.
        """
        hosted = self._hosted
        given = [p for p in participants_of(trainer) if not any(p is hook for hook in hosted)]
        entries = each_once([entry for one in given for entry in one.entries()])
        _settle_other_fits(trainer, pl_module, [hook for hook, _ in entries])
        self._buffers.patch(trainer, pl_module)
        self._options = merge_options([participant.options() for participant in given])
        self._entries = entries
        self._hosted.update(trainer, [hook for hook, _ in self._entries], stage)
        if not any(isinstance(hook, ModelCheckpoint) for hook, _ in self._entries):
            self._own_io = check_layout(trainer)  # else these check what is read
        if trainer.state.fn != TrainerFn.FITTING:
            return
        runner = self.prepare(trainer, pl_module)
        self._failed = False
        self._ownership = Ownership(runner, self._options.owns_backward)
        self._ownership.take()
        self._step = StepCapture(runner, self._calls, self._ownership)
        self._cycle = cycle_of(runner, self._calls, self._train_data, self._resumed)
        self._had_fit = True
        _DRIVERS.add(self)

    def prepare(self, trainer: L.Trainer, pl_module: L.LightningModule) -> Runner:
        """Return the runner with the hooks of all participants, for a fit or an evaluation."""
        options = self._options
        if not self._is_of(trainer):
            self._runner = make_runner(trainer, pl_module, options)
            self._calls = Calls(self._runner)
        runner = self._runner
        runner.hooks.on_change = self._on_hooks_change
        runner.on_model_change = self._on_model_change
        runner.attach(pl_module, options.model(pl_module) if options.model else None)
        self._model = ModelWatch(runner)
        if options.meta is not None:
            runner.meta = {**options.meta}
        runner.given_attributes = frozenset(options.attributes or ())
        for name, value in (options.attributes or {}).items():
            # one that takes no lines is for hooks of pointrix; this package's lines go on
            takes_lines = name != "logger" or callable(getattr(value, "info", None))
            setattr(runner, name if takes_lines else "given_logger", value)
        runner.hooks.clear()
        for hook, priority in self._entries:
            runner.register_hook(hook, priority)
        callbacks = callbacks_of(trainer)
        check_order(runner.hooks, callbacks, callbacks.index(self))
        return runner

    def take_model(self) -> None:
        """Run the model that a hook has assigned from now on, in a validation or test."""
        self._model.take()

    def _on_hooks_change(self) -> None:
        """Follow a hook that was registered or removed."""
        self._calls.forget()

    def _on_model_change(self) -> None:
        """Follow a model that a hook has assigned."""
        self._model.assigned()

    # -- after the run ---------------------------------------------------------------------

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Restore the module; an error here would hide the one that is raised."""
        self._failed = True
        with contextlib.suppress(Exception):
            self._restore(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the module and the callbacks."""
        self._restore(trainer)

    def _restore(self, trainer: L.Trainer) -> None:
        self._buffers.remove_patches()
        if self._own_io is not None:
            trainer.strategy.checkpoint_io, self._own_io = self._own_io, None
        self._in_run = False
        self._train_data.end_epoch(trainer)
        self._train_data.unwatch(trainer)
        if self._had_fit:
            self._cycle.restore_val_data()
            self._runner.close_val_log()
            self._step.remove()
            if self._epoch_end is not None:
                self._epoch_end.remove()
                self._epoch_end = None
            self._model.unguard()
            self._ownership.release()
        restore_events([self, *participants_of(trainer)])

    # -- checkpoints -----------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write the run's counters, mmcv's meta and the random states."""
        if self._has_runner:
            in_epoch = self._had_fit and self._cycle.in_epoch
            hooks = [hook for hook, _ in self._entries]
            hooks += [hook for hook in self._hosted if not any(hook is one for one in hooks)]
            resume.write(checkpoint, self._runner, hooks, in_epoch=in_epoch, alone=self._failed)
            self._buffers.take_out(pl_module, checkpoint)  # here too: it may be after the fit

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the entry of a checkpoint until the run starts; a validation does not resume it."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._resumed.load(checkpoint)


_DRIVERS: weakref.WeakSet[DriverLifecycle] = weakref.WeakSet()
"""Those that have had a fit."""


def _settle_other_fits(trainer: L.Trainer, module: L.LightningModule, hooks: list[Any]) -> None:
    """Refuse a hook whose state is that of another running fit; clean up after one cut short.

    Lightning ends a fit without a word to us if another callback raises in ``on_exception``.
    """
    for driver in list(_DRIVERS):
        state = driver._runner.trainer.state
        if state.fn != TrainerFn.FITTING or state.status != TrainerStatus.RUNNING:
            if driver._runner.module is module:
                driver._restore(driver._runner.trainer)
        elif not driver._is_of(trainer):
            for hook, _ in driver._entries:
                if any(hook is one for one in hooks):
                    raise RuntimeError(
                        f"{class_name(hook)} is in a fit of another Trainer, which goes on: give "
                        "this Trainer a hook of its own"
                    )
