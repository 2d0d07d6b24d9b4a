"""Call all hooks of a Trainer at the ten points, from Lightning's events.

Lightning validates *inside* the training epoch. So ``after_train_epoch`` is called at the start of
a validation after the epoch's last batch, in train mode and with gradients on; without such a
validation at ``on_train_epoch_end``. A validation in mid-epoch does not close the epoch. The sanity
check and stand-alone ``validate``, ``test`` and ``predict`` call no point.

=====================  ==========================================================================
point                  Lightning's event
=====================  ==========================================================================
before_run             on_train_start
before_train_epoch     on_train_epoch_start; on_train_start when resumed inside an epoch
before_train_iter      on_train_batch_start
after_train_iter       on_train_batch_end; hooks that own backward, inside training_step
after_train_epoch      on_validation_start after the epoch's last batch, else
                       on_train_epoch_end
before_val_epoch       on_validation_start
before/after_val_iter  on_validation_batch_start, on_validation_batch_end
after_val_epoch        on_validation_end, where the epoch's metrics are known
after_run              on_train_end
=====================  ==========================================================================

The loggers also write the module's epoch-level values, after the module's own
``on_train_epoch_end``, and the values of a stand-alone ``validate`` or ``test`` at the end.

Every rank needs at least one hook; the hooks of ranks may differ. The ranks agree on
``runner.should_stop`` where an epoch, a pass over the data or a validation ends, and where a
checkpoint is written: no step waits for another rank.

A batch, from ``on_train_batch_start`` to a hook's ``after_train_iter``, goes through the driver
and the list of calls in ``calls.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.contents import Contents
from lightning_hooks.engine.driver.epoch_cycle import EpochCycle, IterCycle
from lightning_hooks.engine.driver.model_replacement import ModelWatch
from lightning_hooks.engine.driver.ownership import Call, Ownership, has_foreign
from lightning_hooks.engine.driver.point_dispatcher import PointDispatcher
from lightning_hooks.engine.driver.run_state import RunState
from lightning_hooks.engine.driver.step_capture import StepCapture
from lightning_hooks.engine.driver.train_data import TrainData
from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.hook_callback import (
    HookCallback,
    RunnerOptions,
)
from lightning_hooks.engine.hook_order import check_order
from lightning_hooks.engine.hosted import HostedHook, class_name, is_one_of
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.engine.lightning_api.callback_list import (
    add,
    after_setups,
    callbacks_of,
    check_callbacks,
    insert,
    take_out,
)
from lightning_hooks.engine.lightning_api.events import (
    restore_events,
    skip_events,
    skip_unused_events,
)
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.private_names import check_private_names
from lightning_hooks.engine.lightning_api.releases import check_release
from lightning_hooks.engine.lightning_api.sigterm import ends_all_ranks, share_sigterm
from lightning_hooks.engine.roster import Roster, hook_callbacks_of, merge_options
from lightning_hooks.engine.runner import metrics
from lightning_hooks.engine.runner.model_wrapper import log_vars_of
from lightning_hooks.engine.runner.optimizers import with_modes
from lightning_hooks.engine.runner.runner import EpochRunner, IterRunner, Runner
from lightning_hooks.storage import files
from lightning_hooks.storage.checkpoint_io import check_reads
from lightning_hooks.storage.torch_files import save_torch
from lightning_hooks.utils.default_logger import default_logger
from lightning_hooks.utils.first_error import name_first_error
from lightning_hooks.utils.origin import is_ours

__all__ = ["Driver", "is_lightnings_default"]

BATCH_EVENTS = (
    "on_train_batch_start",
    "on_after_backward",
    "on_train_batch_end",
    "on_validation_batch_start",
)


class Driver(Callback):
    """The callback that calls all hooks; placed before the first hook or adapter of a Trainer."""

    state_key = "Driver"
    """A constant, as Lightning reads the key at each event."""

    calls: PointDispatcher
    """The calls of the runner's hooks, from the first fit on."""

    model_watch: ModelWatch
    """What trains and validates with a model assigned by a hook, in the present or last fit."""

    ownership: Ownership
    """The owner of backward in the present or last fit."""

    def __init__(self) -> None:
        self.fit = FitChanges()
        """What the hooks have changed for the present fit or evaluation."""
        self.roster = Roster()
        """The hooks that take part in the present or last fit or evaluation."""
        self.after_raw_scores: list[Callable[[], None]] | None = None
        """What waits for the raw weights' validation; None where none follows."""
        self._contents = Contents()
        self._in_run = False  # true from on_train_start on: after the sanity check
        self._batches_are_new = False
        self._after_backward: list[HostedHook] = []

    @property
    def runner(self) -> Runner:
        """The hooks' runner.

        Raises:
            RuntimeError: before the first fit.
        """
        if not self._has_runner:
            raise RuntimeError("there is no runner before Trainer.fit()")
        return self._runner

    def runner_for(self, trainer: L.Trainer, module: L.LightningModule) -> Runner:
        """Return the runner, made here for an evaluation before the first fit."""
        return self._runner if self.is_of(trainer) else self.prepare(trainer, module)

    @property
    def _has_runner(self) -> bool:
        return hasattr(self, "_runner")

    def is_of(self, trainer: L.Trainer) -> bool:
        """Whether the runner belongs to a Trainer; a driver may move to another Trainer."""
        return self._has_runner and self._runner.trainer is trainer

    @classmethod
    def of(cls, trainer: L.Trainer) -> Driver:
        """Return the Trainer's driver; the first call adds a driver to the callbacks."""
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # not declared
        for callback in callbacks:
            if isinstance(callback, Driver):
                return callback
        driver = cls()
        add(trainer, driver)
        return driver

    @staticmethod
    def work_dir(trainer: L.Trainer) -> str:
        """Return the directory for the hooks' files, also before the first fit."""
        for driver in _drivers(trainer):
            if driver.is_of(trainer):
                return driver.runner.work_dir
            if driver.fit.is_of(trainer):
                return _work_dir(trainer, driver.roster.options)
        return _work_dir(trainer, merge_options(hook_callbacks_of(trainer)))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run behind: a copy is the driver of another Trainer, or process."""
        return {**vars(type(self)()), "roster": self.roster}

    # -- before the run --------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Collect the hooks of all participants and get ready for a fit.

        A hook in front of the driver calls this before Lightning does.

        Raises:
            TypeError: for a class, or a hook that is no callback, among the callbacks.
            RuntimeError: if another Trainer's fit with the same hook is running.
        """
        drivers = _drivers(trainer)
        if drivers and self is not drivers[0]:  # of a list replaced since, or of another Trainer
            return
        add(trainer, self)  # another callback may have left the driver out of a new list
        if self.fit.is_of(trainer):
            return
        check_callbacks(trainer)
        roster = Roster(hook_callbacks_of(trainer), self.roster.hosted)
        check_release()
        check_private_names(trainer)
        for callback in [*roster.given, *roster.hosted]:
            _end_earlier_fit(callback, trainer)
        roster.begin()
        self.roster, self._contents.hooks = roster, roster.hooks
        self._open_fit(trainer, pl_module)
        saves = any(isinstance(hook, ModelCheckpoint) for hook in roster.hooks)
        own_write = trainer.strategy.checkpoint_io.save_checkpoint
        check_reads(trainer, self.fit, self._loading, save_torch if saves else own_write)
        add(trainer, *roster.hosted)
        for hook in roster.hosted:
            hook.setup(trainer, pl_module, stage)
        if trainer.state.fn == TrainerFn.FITTING:
            self._make_parts(self.prepare(trainer, pl_module))

    def _open_fit(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Undo what is left of an earlier fit; open the stack of the fit or evaluation."""
        self.fit.close()
        self.fit = fit = FitChanges(trainer)
        fit.callback(restore_events, [self])
        # called first in the next fit of any Trainer, also after an error that was not cleaned up
        fit.patch(module, "configure_callbacks", before=fit.close_if_over)
        after_setups(trainer, partial(self._arrange, trainer), fit)
        self._loading = fit.part()
        self._contents.begin(trainer, module, fit)

    def _make_parts(self, runner: Runner) -> None:
        """Make the parts of a fit."""
        fit, calls = self.fit, self.calls
        fit.callback(setattr, self, "_in_run", False)
        fit.callback(setattr, runner, "stop_requested", False)
        self._renew_run_state()
        self.ownership = Ownership(runner, self.roster.options.owns_backward)
        self.ownership.suspend_lightning(fit)
        self._step = StepCapture(runner, calls, self.ownership, fit)
        self._train_data = TrainData(runner, self._run_state, fit)
        cycle = IterCycle if isinstance(runner, IterRunner) else EpochCycle
        self._cycle = cycle(runner, calls, self._train_data, fit)

    def _renew_run_state(self) -> None:
        self._run_state = self._contents.run_state = RunState(self._runner)

    def take_in(self, hook: HookCallback, trainer: L.Trainer, stage: str) -> bool:
        """Set the driver up for a fit at the first hook's ``setup``; have the hook take part.

        Returns:
            Whether the hook is to be set up, too: not if its adapter is gone, or if the driver has
            just set up the hook with the other hooks of its adapter.
        """
        if not self.fit.is_of(trainer):
            self.setup(trainer, trainer.lightning_module, stage)
        if hook._joined_fit is self.fit or self.roster.has_left(hook):
            return False
        if callable(getattr(type(hook), "log", None)):  # an mmcv logger's log(runner)
            vars(hook).pop("log", None)  # the module's, set by Lightning
        _end_earlier_fit(hook, trainer)
        hook._joined_fit = self.fit
        self.fit.callback(setattr, hook, "_joined_fit", None)
        return True

    def _arrange(self, trainer: L.Trainer) -> None:
        """Put the driver in front of the first hook, and the hosted hooks among the callbacks."""
        hosted = [hook for hook in hook_callbacks_of(trainer) if hook._hosted_at is not None]
        take_out(trainer, [*_drivers(trainer), *hosted])  # also those of an adapter that is gone
        insert(trainer, [self], lambda callback: isinstance(callback, HookCallback))
        if self.roster.hosted:  # so that ckpt_path="best" is a hook's
            insert(trainer, self.roster.hosted, is_lightnings_default)

    def prepare(self, trainer: L.Trainer, pl_module: L.LightningModule) -> Runner:
        """Return the runner with the hooks of all participants, for a fit or an evaluation."""
        options = self.roster.options
        if not self.is_of(trainer):
            kind = IterRunner if options.by_epoch is False else EpochRunner
            self._runner = options.runner or kind(
                trainer,
                pl_module,
                _work_dir(trainer, options),
                default_logger(trainer.global_rank),
            )
            self.calls = PointDispatcher(self._runner)
            self._renew_run_state()
        runner = self._runner
        runner.on_model_change = self._on_model_change
        runner.attach(pl_module, options.model(pl_module) if options.model else None)
        self.model_watch = ModelWatch(runner, self.fit)
        if options.meta is not None:
            runner.meta = {**options.meta}
        runner.given_attributes = frozenset(options.attributes or ())
        for name, value in (options.attributes or {}).items():
            # a logger without info() is for hooks of pointrix; this package keeps its own logger
            takes_lines = name != "logger" or callable(getattr(value, "info", None))
            setattr(runner, name if takes_lines else "given_logger", value)
        hooks = runner.hooks
        hooks.clear()
        hooks.add(*self.roster.entries)
        hooks.on_change = self._on_hooks_change
        check_order(hooks, callbacks_of(trainer))
        return runner

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restore the name and the random state of a resumed run; watch the training data."""
        self._run_state.restore_name()
        self._run_state.restore_rng()
        self._train_data.watch(self._loading)

    # -- the run ---------------------------------------------------------------------------

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``before_run``."""
        runner, attributes = self.runner, self.roster.options.attributes or {}
        self._loading.close()
        if self._run_state.saved.get("end_is_left"):
            progress.run_epoch_end(trainer, self.fit)
        else:
            progress.leave_resumed_epoch(trainer)
        self._train_data.follow_reloads()
        runner.renew()
        runner.mode = None
        runner.stop_requested = runner.ends_together = False
        runner.sigterm = share_sigterm(trainer, self.fit)
        inside = progress.goes_on_in_epoch(trainer)
        self._run_state.restore_counters(inside)
        self._run_state.restore_metrics()
        self._run_state.watch_validations(self.fit)
        log_values = self._run_state.log_values()  # cleared with the data
        self.ownership.hand_over_optimizers()
        self._in_run, self._has_begun = True, False
        self.calls.capture_train_mode()
        runner.announce()
        with_foreign = has_foreign(runner.hooks)
        if not with_foreign:  # foreign hooks may set any value
            self._run_state.warn_of_left_values()
        self._run_state.warn_of_stop()
        new = runner.work_dir if with_foreign and runner.may_write else ""
        if new and files.is_local(new):
            files.make_directory(new)  # as mmcv does: old hooks write into it
        self.begin_hooks(with_foreign)
        shown = attributes.get("data_loader")
        if shown is not None and runner.new_data_loader is shown:
            runner.new_data_loader = None  # for before_run alone, like a loader set before run()
        self._has_begun = True
        skip_unused_events(trainer, [self, *hook_callbacks_of(trainer)], self.fit)
        self._step.patch()
        runner.step_rates.resume(self._run_state.saved.get("rates", []))
        if inside:
            self._step.lost = self._run_state.restore_sums(self.fit)
        runner.start_iter = runner.iter  # a hook may have set it
        runner.step_counts.begin_run()
        self._expect_batches()
        self.begin_cycle()
        for values in log_values:  # loggers clear the buffer when an epoch begins
            runner.log_buffer.load_state_dict(values, self._run_state.closed_batches)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``before_train_epoch``."""
        self._expect_batches()
        self._cycle.begin_epoch()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Call ``before_train_iter``."""
        if self._batches_are_new:
            self._begin_batches()
        self._runner.data_batch = batch
        if self._cycle.acts_in_batches:
            self._cycle.begin_batch(batch_idx)
        self.calls.run("before_train_iter")

    def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call detectron2's ``after_backward``."""
        for hook in self._after_backward:
            hook.call("after_backward")

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *_idx: Any
    ) -> None:
        """Call ``after_train_iter``; for hooks that own backward, the calls after the step."""
        runner = self._runner
        if batch is None:  # the loader gave none: no step has run
            runner.empty_batches += 1
            return
        runner.data_batch = batch
        if self._step.fills_log_buffer:
            self._step.fill_log_buffer(outputs)
        calls: Sequence[Call] | None = None
        if self.ownership.is_taken:  # the first calls were made inside the training step
            _, calls = self.ownership.inside_and_after_step(
                self.calls.calls_for("after_train_iter")
            )
        self.calls.run("after_train_iter", calls)
        if runner.log_buffer.news:
            metrics.publish_results(runner)
        vars(runner).pop("data_batch", None)  # a hook may have deleted the batch
        if self._cycle.acts_in_batches:
            self._cycle.end_batch()
        if runner.stop_requested and runner.world_size == 1:
            trainer.should_stop = True  # also if a callback has taken the wish back

    def _expect_batches(self) -> None:
        """Call the events of the next batch: :meth:`_begin_batches` skips the unused ones."""
        self._batches_are_new = True
        restore_events([self], BATCH_EVENTS)
        hosted = [hook for hook in self._runner.hooks if isinstance(hook, HostedHook)]
        self._after_backward = [hook for hook in hosted if hook.acts_after_backward]
        if not self._after_backward:
            skip_events(self, "on_after_backward")

    def _begin_batches(self) -> None:
        """Have Lightning skip the events of a batch without any work."""
        self._batches_are_new = False
        runner = self.runner
        if runner.start_iter is not None:
            # Lightning has now counted the batch after which the checkpoint was written
            runner.iter, runner.start_iter = runner.start_iter, None
            runner.step_counts.accumulate_as_scheduled()
        self.model_watch.take()
        calls, owned = self.calls, self.ownership.is_taken
        acts = owned or self._cycle.acts_in_batches
        if not (acts or calls.calls_for("before_train_iter")):
            skip_events(self, "on_train_batch_start")
        acts = acts or self._step.fills_log_buffer
        if not (acts or calls.calls_for("after_train_iter")):
            skip_events(self, "on_train_batch_end")

    def _on_hooks_change(self) -> None:
        """Update the calls after a hook was registered or removed."""
        self.calls.forget()
        self._expect_batches()
        if self._in_run:
            natives = [hook for hook in self.runner.hooks if isinstance(hook, HookCallback)]
            for hook in natives:
                if not is_one_of(hook, callbacks_of(self.runner.trainer)):
                    self._join_run(hook)
            if has_foreign(self.runner.hooks):
                self.model_watch.guard()
            self._step.patch()

    def _join_run(self, hook: Any) -> None:
        """Make a native hook registered during the run a callback, and prepare it for the run.

        ``before_run`` is called for hooks of this package and of subclasses. Other hooks are
        called from the next point on, as in mmcv.
        """
        runner, trainer = self.runner, self.runner.trainer
        self.roster.host(hook)
        # Lightning has not come as far as this place
        insert(trainer, [hook], is_lightnings_default)
        hook.setup(trainer, runner.module, "fit")
        hook.on_fit_start(trainer, runner.module)
        if self._has_begun:
            if _prepares_in_before_run(hook):
                with calling(hook, "before_run", runner):
                    hook.before_run(runner)
            hook.on_train_start(trainer, runner.module)
            skip_unused_events(trainer, [hook], self.fit)

    def _on_model_change(self) -> None:
        """Note a model assigned by a hook."""
        self._expect_batches()
        self.model_watch.assigned()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``after_train_epoch`` if the epoch's batches are done; ``before_val_epoch``."""
        if self._in_run:
            self._cycle.begin_validation()
            self.model_watch.take()
            if not (has_foreign(self._runner.hooks) or self.calls.calls_for("before_val_iter")):
                skip_events(self, "on_validation_batch_start")

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, *_idx: Any
    ) -> None:
        """Call ``before_val_iter``."""
        if self._in_run:
            self.runner.inner_iter = validation.batches_begun(trainer) - 1  # over all loaders
            self.runner.data_batch = batch
            self.calls.run("before_val_iter")

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *_idx: Any
    ) -> None:
        """Call ``after_val_iter``."""
        if self._in_run:
            runner = self._runner
            runner.inner_iter = validation.batches_begun(trainer) - 1
            runner.take_result(outputs)
            values = log_vars_of(runner.outputs)
            if values is not None:
                runner.log_buffer.update(values, runner.outputs.get("num_samples", 1))
            if self.calls.calls_for("after_val_iter"):
                vars(runner).setdefault("data_batch", batch)  # the event before may be skipped
                self.calls.run("after_val_iter")
            vars(runner).pop("data_batch", None)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``after_val_epoch``; outside of a fit have the loggers write the values."""
        if self._in_run:
            self._cycle.end_validation()
        elif trainer.state.fn == TrainerFn.VALIDATING:
            self._log_evaluation(trainer, pl_module, "val")

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Have the loggers write the module's logged values of a test."""
        self._log_evaluation(trainer, pl_module, "test")

    def _log_evaluation(self, trainer: L.Trainer, module: L.LightningModule, mode: str) -> None:
        runner = self.runner_for(trainer, module)
        runner.loaded_epoch = self._contents.loaded_epoch
        batches = trainer.num_test_batches if mode == "test" else trainer.num_val_batches
        values = validation.val_metrics(trainer)
        metrics.log_values(runner, mode, values, int(sum(batches)))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``after_train_epoch``, unless a validation has ended the epoch."""
        self._cycle.end_epoch()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``after_run``."""
        self.end_hooks()
        self._in_run = False

    def begin_hooks(self, with_foreign: bool) -> None:
        """Call ``before_run``; isolate foreign hooks' calls of the model from here on."""
        if with_foreign:
            self.model_watch.guard()
        with self._contents.buffers.added(with_foreign):
            self.calls.run_at_border("before_run")

    def begin_cycle(self) -> None:
        """Open the run's first epoch, after ``before_run``."""
        self._cycle.begin_run()

    def end_hooks(self) -> None:
        """Close the run's last epoch; call ``after_run``."""
        self._cycle.end_run()
        self.calls.run_at_border("after_run")
        self._runner.announce_end()

    # -- after the run ---------------------------------------------------------------------

    @property
    def has_no_batch_left(self) -> bool:
        """Whether the fit has resumed a finished run: no point was called."""
        return self._train_data.is_resumed

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restore the meta of a finished run."""
        if self.has_no_batch_left:
            self._run_state.restore_meta()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Restore the module; suppress further errors, which would hide the raised error."""
        name_first_error(exception, trainer.world_size)
        if "train mode" in str(exception) and (optimizers := with_modes(trainer.optimizers)):
            name = type(optimizers[0]).__name__
            default_logger(trainer.global_rank).error(
                "%s wants train() and eval() to be called: add ScheduleFreeHook()", name
            )
        with contextlib.suppress(Exception):
            self.fit.close()
        if self._has_runner:
            self._runner.ends_together = ends_all_ranks(exception, trainer)
        for hook in self._runner.hooks if self._has_runner else ():
            if isinstance(hook, HostedHook):
                hook.fail()
            elif isinstance(hook, HookCallback):
                hook._save_after_error(trainer, exception)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the module and the callbacks."""
        self.fit.close()
        if not (stage == "fit" and self.has_no_batch_left and progress.is_at_end(trainer)):
            return
        if progress.has_lost_validation(trainer):
            self.runner.logger.warning(
                "the file was written before the validation that follows the last of max_steps=%d: "
                "no step is left, and Lightning ends the run without: call trainer.validate()",
                trainer.max_steps,
            )
        elif self._run_state.saved.get("end_is_left"):
            self.runner.logger.warning(
                "the file was written before the end of the epoch with the last of max_steps=%d: "
                "no step is left, and Lightning ends the run without the events of the epoch's end",
                trainer.max_steps,
            )


def _drivers(trainer: L.Trainer) -> list[Driver]:
    """Return the driver in the list of callbacks; lists of two Trainers put together have two."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # not declared
    return [callback for callback in callbacks if isinstance(callback, Driver)]


def _end_earlier_fit(hook: HookCallback, trainer: L.Trainer) -> None:
    """End a hook's, or an adapter's, fit that was cut short.

    Raises:
        RuntimeError: if the hook takes part in a running fit of another Trainer.
    """
    fit = hook._joined_fit
    if fit is None:
        return
    if fit.is_running and fit.trainer is not trainer:
        raise RuntimeError(
            f"{class_name(hook)} is in a fit of another Trainer, which goes on: give "
            "this Trainer a hook of its own"
        )
    fit.close()


def is_lightnings_default(callback: Callback) -> bool:
    """Return whether a callback is Lightning's default ModelCheckpoint."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback.monitor is callback.filename is callback.save_last is None


def _work_dir(trainer: L.Trainer, options: RunnerOptions) -> str:
    """Return the directory for the hooks' files: an absolute or a remote path."""
    return files.absolute(options.work_dir or trainer.default_root_dir)


def _prepares_in_before_run(hook: Any) -> bool:
    """Whether a class of this package, besides the base of all hooks, has a ``before_run``."""
    return any(
        "before_run" in vars(base) and base.__name__ != "Hook"
        for base in type(hook).__mro__
        if is_ours(base)
    )
