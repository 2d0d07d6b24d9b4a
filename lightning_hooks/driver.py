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
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks import loops, resume
from lightning_hooks.console import default_logger
from lightning_hooks.data import Iteration
from lightning_hooks.flags import TrainFlags
from lightning_hooks.hook_buffers import HookBuffers
from lightning_hooks.hook_list import method_at
from lightning_hooks.listening import Listening
from lightning_hooks.log_buffer import LogBuffer
from lightning_hooks.model import as_outputs
from lightning_hooks.notes import add_hook_note
from lightning_hooks.ownership import Ownership, is_ours, trains_like_mmcv
from lightning_hooks.priority import is_family
from lightning_hooks.runner import EpochRunner, IterRunner, Runner
from lightning_hooks.settings import Settings, merge
from lightning_hooks.step import OrphanLoss

__all__ = ["Driver", "Participant"]

_EVENTS = tuple(
    name
    for name in vars(Callback)
    if name.startswith("on_") and name not in ("on_save_checkpoint", "on_load_checkpoint")
)


class Participant(Callback):
    """A callback that brings hooks into a Trainer: a single hook, or an adapter with many."""

    hosted_at: int | None = None
    """The place of a hook among those of its Trainer's adapters, if it is in one."""

    def entries(self) -> Sequence[tuple[Any, int]]:
        """The hooks with their priorities, in the order given."""
        raise NotImplementedError

    def settings(self) -> Settings:
        """What this participant wants of the Runner."""
        return Settings()

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make sure that the Trainer has its driver.

        Raises:
            TypeError: if the Trainer is that of the package ``pytorch_lightning``.
        """
        if not isinstance(trainer, L.Trainer):
            raise TypeError(
                f"{type(self).__name__} needs lightning.Trainer, got that of "
                f"{type(trainer).__module__.partition('.')[0]}: its classes are others; "
                "write `import lightning as L` and L.Trainer, L.LightningModule"
            )
        Driver.of(trainer, stage)


class Driver(Callback):
    """The one callback that calls the hooks; it stands before the first participant."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._hosted: list[Any] = []  # the hooks of adapters that are in trainer.callbacks too
        self._calls: dict[str, list[tuple[Any, Callable[[Any], None]]]] = {}
        self._version = -1
        self._in_run = self._in_epoch = self._in_step = self._failed = False
        self._first_iter: int | None = None
        self._flags = TrainFlags()
        self._step: Listening | None = None
        self._iteration = Iteration()
        self._ownership: Ownership | None = None
        self._resumed = resume.ResumeState()
        self._buffers = HookBuffers()

    @property
    def runner(self) -> Runner:
        """What the hooks see; there from the first fit's setup on."""
        if self._runner is None:
            raise RuntimeError("there is no runner before Trainer.fit()")
        return self._runner

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

    # -- before the run --------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Collect the hooks of all participants and get ready for a fit."""
        self._buffers.listen(pl_module)
        participants = [
            callback
            for callback in trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(callback, Participant) and not any(callback is h for h in self._hosted)
        ]
        wishes = merge([participant.settings() for participant in participants])
        entries = _each_once([entry for p in participants for entry in p.entries()])
        self._host(trainer, [hook for hook, _ in entries], stage)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        if self._runner is None:
            self._runner = _make_runner(trainer, pl_module, wishes)
        runner = self._runner
        runner.attach(pl_module, wishes.model(pl_module) if wishes.model else None)
        if wishes.meta is not None:
            runner.meta = {**wishes.meta}
        for name, value in (wishes.attributes or {}).items():
            setattr(runner, name, value)
        runner.hooks.clear()
        for hook, priority in entries:
            runner.register_hook(hook, priority)
        self._failed = False
        self._ownership = Ownership(runner, wishes.owns_backward)
        self._ownership.take()
        self._mute(trainer)

    def _host(self, trainer: L.Trainer, hooks: list[Any], stage: str) -> None:
        """Give the native hooks of adapters their Lightning events: they are Callbacks too."""
        for hook in hooks:
            callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(hook, Participant) and not any(c is hook for c in callbacks):
                hook.hosted_at = len(self._hosted)
                self._hosted.append(hook)
                trainer.callbacks = [*callbacks, hook]  # type: ignore[attr-defined]
                hook.setup(trainer, trainer.lightning_module, stage)

    @staticmethod
    def _mute(trainer: L.Trainer) -> None:
        """Set the events that a callback of ours does not use to None: Lightning skips those.

        Otherwise every callback pays for every event of every batch, used or not.
        """
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, (Driver, Participant)):
                for name in _EVENTS:
                    if getattr(type(callback), name) is getattr(Callback, name):
                        callback.__dict__[name] = None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put the random state back before the first iterator is made from it."""
        self._resumed.restore_rng(trainer.global_rank)
        self._iteration.watch(trainer)

    # -- the run ---------------------------------------------------------------------------

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``before_run``."""
        self._iteration.unwatch(trainer)
        self._buffers.stop_listening()
        loops.leave_resumed_epoch(trainer)
        runner, saved = self.runner, self._resumed.state or {}
        runner.mode = None
        runner._stop_requested = False
        runner._iter = saved.get("iter", loops.batches_processed(trainer))
        mid_epoch = loops.is_resuming_mid_epoch(trainer)
        self._in_epoch = mid_epoch and saved.get("in_epoch", not loops.is_last_batch(trainer))
        runner._inner_iter = loops.batch_idx(trainer) if self._in_epoch else 0
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
        assert self._ownership is not None
        self._ownership.start()
        self._in_run = True
        self._flags.capture(pl_module)
        runner.logger.info(
            "Hooks will be executed in the following order:\n%s", runner.get_hook_info()
        )
        keys = self._buffers.keys(pl_module)
        self._call("before_run")
        self._buffers.added(pl_module, keys)
        self._host(trainer, list(runner.hooks), "fit")  # those that a hook has registered
        self._mute(trainer)
        if self._ownership or any(getattr(h, "reads_step", True) for h in runner.hooks):
            self._step = Listening(pl_module, "training_step", after=self._after_step)
        self._first_iter = runner.iter
        if isinstance(runner, IterRunner):
            self._begin_run_by_iter()
        elif self._in_epoch:
            self._begin_epoch(synthesised=True)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``before_train_epoch``."""
        if isinstance(self.runner, EpochRunner):
            self._begin_epoch()
        else:
            self._bound_log()
            self._take_data()

    def _begin_epoch(self, synthesised: bool = False) -> None:
        runner = self.runner
        assert isinstance(runner, EpochRunner)
        runner.mode = "train"
        runner._own_max_iters = None
        if trains_like_mmcv(runner.module):
            runner.module.train()
        self._bound_log()
        self._restore_rng()
        with _weights_kept(runner.module) if synthesised else contextlib.nullcontext():
            self._call("before_train_epoch")
        self._in_epoch = True
        runner._inner_iter = None
        self._flags.capture(runner.module)
        self._take_data()

    def _begin_run_by_iter(self) -> None:
        runner = self.runner
        runner._epoch = runner.trainer.current_epoch
        self._restore_rng()
        self._call("before_epoch")
        self._in_epoch = True
        self._take_data()

    def _restore_rng(self) -> None:
        """Forget the numbers drawn since on_fit_start: the uninterrupted run did not draw them."""
        trainer = self.runner.trainer
        if self._resumed and (self._iteration.can_renew(trainer) or loops.iterates_anew(trainer)):
            self._resumed.restore_rng(trainer.global_rank)

    def _bound_log(self) -> None:
        """Drop old values from a log buffer that no logger clears."""
        if not any(is_family(hook, "LoggerHook") for hook in self.runner.hooks):
            self.runner.log_buffer.trim(10_000)

    def _take_data(self) -> None:
        if self._resumed:
            self._resumed.restore_generators(self.runner)
        hooks = [h for p in ("before_run", "before_train_epoch") for h, _ in self._at(p)]
        self._iteration.begin_epoch(
            self.runner,
            resumed=bool(self._resumed),
            hooks_may_change_data=not all(is_ours(hook) for hook in hooks),
        )
        self._resumed = resume.ResumeState()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """``before_train_iter``."""
        runner = self.runner
        if self._first_iter is not None:
            self._before_first_batch(trainer)
        if isinstance(runner, IterRunner):
            runner.mode = "train"
            # mmcv reads the loader's passes before it fetches the batch
            runner._epoch = max(trainer.current_epoch - (batch_idx == 0), 0)
            validates = trainer.enable_validation
            runner._inner_iter = runner.iter - runner.last_val_iter if validates else 0
            if trains_like_mmcv(pl_module):
                pl_module.train()
        runner.data_batch = batch
        self._call_iter("before_train_iter", self._at("before_train_iter"))

    def _before_first_batch(self, trainer: L.Trainer) -> None:
        """Anchor the iteration count, and silence this class where no hook needs it per batch."""
        assert self._first_iter is not None
        # Lightning has by now counted a batch at whose end the checkpoint was written
        self.runner._iter, self._first_iter = self._first_iter, None
        always = isinstance(self.runner, IterRunner) or self._ownership
        if not (always or self._at("before_train_iter")):
            self.__dict__["on_train_batch_start"] = None
        if not (always or self._at("after_train_iter") or self._step):
            self.__dict__["on_train_batch_end"] = None

    def _after_step(self, outputs: Any) -> None:
        """Take a training step's result; run the hooks that own backward on it."""
        runner = self.runner
        if not self._in_run or self._in_step or not loops.in_training_step(runner.module):
            return  # the learning rate finder's step, or one that a hook makes
        found = as_outputs(outputs)
        if not self._ownership:
            found = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in found.items()}
            if "loss" in found:
                found["loss"] = found["loss"].as_subclass(OrphanLoss)
            runner.outputs = found
            return
        runner.outputs = self._ownership.with_strategy_loss(found)
        self._feed_log_buffer()
        calls = self._at("after_train_iter")
        calls = calls[: self._ownership.split(calls)]
        if "loss" not in found:  # a step without loss: nothing to run backward from
            calls = [(h, m) for h, m in calls if not any(h is o for o in self._ownership.owners)]
        self._in_step = True
        try:
            self._call_iter("after_train_iter", calls)
        finally:
            self._in_step = False
        runner.outputs = {
            k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in runner.outputs.items()
        }

    def _feed_log_buffer(self) -> None:
        """Give the log buffer the step's ``log_vars``, else its loss and what it logged."""
        runner = self.runner
        outputs = getattr(runner, "outputs", None) or {}
        if "log_vars" in outputs:
            runner.log_buffer.update(outputs["log_vars"], outputs.get("num_samples", 1))
            return
        values = {"loss": outputs["loss"].as_subclass(torch.Tensor)} if "loss" in outputs else {}
        if runner.mode == "train":
            values.update(loops.step_metrics(runner.trainer))
        runner.log_buffer.update(values, outputs.get("num_samples", 1))

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """``after_train_iter``, or what is left of it after the training step."""
        if batch is None:  # the loader gave none: no step has run
            return
        runner = self.runner
        runner.data_batch = batch
        calls = self._at("after_train_iter")
        if self._ownership:
            calls = calls[self._ownership.split(calls) :]
        elif self._step:
            self._feed_log_buffer()
        self._call_iter("after_train_iter", calls)
        del runner.data_batch
        if isinstance(runner, IterRunner):
            last = runner.max_iters is not None and runner.iter + 1 >= runner.max_iters
            if last and self._ownership:  # Lightning counts the hooks' steps, not iterations
                runner.should_stop = True
        self._settle_stop()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_train_epoch`` if this validation ends the epoch; ``before_val_epoch``."""
        if not self._in_fit_validation(trainer):
            return
        runner = self.runner
        if isinstance(runner, IterRunner):
            runner.mode = "val"
            return
        if self._in_epoch and loops.epoch_is_over(trainer):
            loops.train_as_before_validation(trainer)
            with torch.enable_grad():
                self._close_epoch()
            loops.evaluate_as_before(trainer)
        runner._inner_iter = loops.batch_idx(trainer)
        runner.mode = "val"
        self._call("before_val_epoch")

    def _close_epoch(self) -> None:
        runner = self.runner
        assert isinstance(runner, EpochRunner)
        self._call("after_train_epoch")
        self._in_epoch = False
        runner._closed_epoch = runner.trainer.current_epoch
        self._settle_stop()

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
            self.runner.data_batch = batch
            self.runner._inner_iter = batch_idx
            self._call_iter("before_val_iter", self._at("before_val_iter"))

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
            runner.outputs = as_outputs(outputs)
            if "log_vars" in runner.outputs:
                self._feed_log_buffer()
            self._call_iter("after_val_iter", self._at("after_val_iter"))
            del runner.data_batch

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_val_epoch``; in mid-epoch training goes on."""
        if not self._in_fit_validation(trainer):
            return
        runner = self.runner
        if isinstance(runner, IterRunner):
            runner.last_val_iter = runner.iter
            self._log_validation_by_iter()
            return
        runner.log_buffer.update(loops.val_metrics(trainer))
        self._call("after_val_epoch")
        if self._in_epoch:
            runner.mode = "train"
            runner._inner_iter = None
        self._settle_stop()

    def _log_validation_by_iter(self) -> None:
        """Give the loggers what the module has logged, though there is no epoch that ends.

        The values of the training steps around it stay in their own buffer.
        """
        runner = self.runner
        values = loops.val_metrics(runner.trainer)
        if values:
            training, runner.log_buffer = runner.log_buffer, LogBuffer()
            runner.log_buffer.update(values)
            for hook, method in self._at("after_val_epoch"):
                if is_family(hook, "LoggerHook"):
                    method(runner)
            runner.log_buffer = training

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_train_epoch``, unless a validation has ended the epoch."""
        if self._in_epoch and isinstance(self.runner, EpochRunner):
            self._close_epoch()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """``after_run``."""
        runner = self.runner
        if isinstance(runner, IterRunner):
            runner._inner_iter += 1
            self._call("after_epoch")
        self._call("after_run")
        self._in_run = False

    # -- after the run ---------------------------------------------------------------------

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Give the module back as it was; an error here would hide the one that is raised."""
        self._failed = True
        with contextlib.suppress(Exception):
            self._buffers.stop_listening()
            self._undo(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Give the module and the callbacks back as they were."""
        self._buffers.stop_listening()
        self._undo(trainer)

    def _undo(self, trainer: L.Trainer) -> None:
        self._in_run = False
        self._iteration.unwatch(trainer)
        if self._step is not None:
            self._step.remove()
            self._step = None
        if self._ownership is not None:
            self._ownership.release()
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, (Driver, Participant)):
                for name in _EVENTS:
                    if callback.__dict__.get(name, callback) is None:
                        del callback.__dict__[name]

    # -- checkpoints -----------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write the run's counters, mmcv's meta and the random states."""
        if self._runner is not None:
            resume.write(checkpoint, self._runner, in_epoch=self._in_epoch, alone=self._failed)
            checkpoint[resume.KEY]["buffers"] = self._buffers.take_out(checkpoint)

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep what a checkpoint says until the run starts."""
        self._resumed.load(checkpoint)

    # -- calling ---------------------------------------------------------------------------

    def _in_fit_validation(self, trainer: L.Trainer) -> bool:
        fitting = trainer.state.fn == TrainerFn.FITTING
        return self._in_run and fitting and not trainer.sanity_checking

    def _at(self, point: str) -> list[tuple[Any, Callable[[Any], None]]]:
        """Who is called at a point, looked up once for each change of the hook list."""
        hooks = self.runner.hooks
        if hooks.version != self._version:
            self._calls.clear()
            self._version = hooks.version
        if point not in self._calls:
            found = [(hook, method_at(hook, point)) for hook in hooks]
            self._calls[point] = [(hook, method) for hook, method in found if method]
        return self._calls[point]

    def _call_iter(self, point: str, calls: list[tuple[Any, Callable[[Any], None]]]) -> None:
        """Call a point of each batch."""
        runner = self.runner
        hook: Any = None  # of the call that raises
        try:
            for hook, method in calls:  # noqa: B007
                method(runner)
        except BaseException as error:
            add_hook_note(error, hook, point, runner)
            raise
        self._put_flags_back(runner)

    def _call(self, point: str) -> None:
        """Call a point of each epoch or run, on the list as it changes under way."""
        self.runner.call_hook(point)
        self._put_flags_back(self.runner)

    def _put_flags_back(self, runner: Runner) -> None:
        # a module that trains as in mmcv gets its train() with the next epoch, as there
        in_eval = not runner.module.training and runner.mode != "val"
        if in_eval and not trains_like_mmcv(runner.module):
            self._flags.put_back(runner.module, runner.model)

    def _settle_stop(self) -> None:
        """Tell the Trainer of ``runner.should_stop``, on all ranks if it is set on one."""
        runner = self.runner
        stop = runner._stop_requested
        if runner.world_size > 1 and not all(is_ours(hook) for hook in runner.hooks):
            stop = runner.trainer.strategy.reduce_boolean_decision(stop, all=False)
        if stop:
            runner.trainer.should_stop = True


def _make_runner(trainer: L.Trainer, module: L.LightningModule, wishes: Settings) -> Runner:
    kind = IterRunner if wishes.by_epoch is False else EpochRunner
    work_dir = wishes.work_dir or trainer.default_root_dir
    if "://" not in work_dir:
        work_dir = os.path.abspath(work_dir)
    return kind(trainer, module, work_dir, default_logger(trainer.global_rank))


def _each_once(entries: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    for index, (hook, _) in enumerate(entries):
        if any(hook is other for other, _ in entries[:index]):
            raise ValueError(
                f"the same {type(hook).__name__} object is given twice; "
                "a hook takes part in a Trainer once"
            )
    return entries


@contextlib.contextmanager
def _weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """Put parameters and buffers back as they are now.

    For a ``before_train_epoch`` that is called again for an epoch already begun: a hook that
    swaps weights there has swapped them before.
    """
    before = {
        name: value.detach().clone()
        for name, value in module.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    yield
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name in before and isinstance(value, torch.Tensor):
                value.copy_(before[name])
