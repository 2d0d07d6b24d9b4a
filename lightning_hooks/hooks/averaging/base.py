"""``AveragingHook``: the base of the hooks that evaluate with an average of the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.contents import present_state, restore_raw_weights
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_states import Identity, finds_none
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.raw_validation import RawValidation
from lightning_hooks.engine.runner import mmcv_checkpoint
from lightning_hooks.engine.runner.optimizer_steps import AppliedSteps
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.checks import (
    check_device,
    check_rivals,
    check_strategy,
    require_device,
)
from lightning_hooks.hooks.averaging.flat_average import FlatAverage
from lightning_hooks.hooks.averaging.module_average import ModuleAverage, Votes
from lightning_hooks.hooks.averaging.saved_average import (
    SavedAverage,
    find_averages,
    write_averages,
)
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from lightning_hooks.hooks.reached import warn_unless_reached
from lightning_hooks.storage import verification, weights
from lightning_hooks.storage.handover import Handover
from lightning_hooks.utils import dtensors
from lightning_hooks.utils.arguments import check_choice, check_int, check_path, shown
from lightning_hooks.utils.attributes import weak_property
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["AveragingHook", "averages_of"]

ARGUMENTS = {
    *("_resume_from", "_buffers", "_begin_iter", "_begin_epoch", "_swap", "_check", "_device"),
    *("_after_fit", "_validate", "_precise_bn"),
}
"""The arguments of a hook whose names old subclasses may use for values of their own."""


class AveragingHook(Hook):
    """Trains with the raw weights and evaluates with their average.

    ``average += w * (parameter - average)`` after optimizer steps. A subclass returns the weight
    ``w`` of the model (``get_momentum``) and the steps of the updates (``updates_at``). A step with
    NaN or infinite weights is left out, on the device, and the next evaluation or checkpoint warns.
    Steps skipped by a gradient scaler do not count, except with a fused optimizer: a fused
    optimizer skips on the device, and the unchanged weights are averaged once more.

    The module has the average's values from ``after_train_epoch`` (for hooks of lower priority
    that evaluate at this point) to the end of the validation, in an ``EvalHook``'s evaluation
    within an epoch, and for good after a fit that ended.
    A further fit of the module goes on from the raw weights, unless the module was changed since;
    then the average begins anew. After an error or an interrupt the module has the raw weights. A
    Trainer with several averages evaluates with the first, except those with ``validate="raw"``.

    =======================  =================================================================
    key in a checkpoint      value
    =======================  =================================================================
    ``state_dict``           the evaluated average, so that ``ckpt_path`` and
                             ``load_from_checkpoint`` give the validation's score
    ``current_model_state``  the raw weights, from which a resumed run trains on
    ``averaging_state``      ``n_averaged``, the number of updates
    ``lightning_hooks``      ``averages``: class, arguments, ``steps`` and ``updates`` of each
                             average, and the ``state_dict`` of each but the first; ``exact``
                             values in float32, if the parameters' type is lower;
                             ``is_estimated`` with statistics of ``precise_bn``
    =======================  =================================================================

    The first three keys are the keys of Lightning's ``WeightAveraging``: either can resume from the
    other's files. A resumed run finds an average by its class and its place among the averages of
    the class; different arguments decide first, see :mod:`lightning_hooks.engine.hook_states`.
    Without an average a resumed run still trains on from the raw weights, if any hook of this
    package is in the Trainer.

    With ``ModelParallelStrategy`` and ``FSDPStrategy`` each rank averages its shards, or its slices
    of flat parameters; the only collective of a step is the vote on NaN. A checkpoint of one file
    has all averages whole, gathered on rank 0's CPU; a checkpoint directory has them in parts, as
    the weights, and another number of ranks can resume. Refused is ``DeepSpeedStrategy``, which
    partitions the trained weights and keeps the weights in another precision.

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
        after_fit: ``"average"``: the module has the average after a fit. ``"raw"``: the module has
            the raw weights, and the average in ``Trainer.validate``, ``test`` and ``predict``.
        validate: ``"average"``. ``"both"``: each validation of a fit runs a second time, with the
            raw weights and the same data and random state, and its values are logged as
            ``raw/...``; of the callbacks only the loggers see it, and the first validation alone
            decides best files and stops. ``"raw"``: the average is for ``apply_to`` and
            ``export`` alone; validations, ``state_dict`` and the module after a fit have the
            raw weights.
        precise_bn: Whether the average has its own BatchNorm statistics, estimated from training
            data with the averaged weights: after each epoch, before a validation within an epoch
            and with each checkpoint, if the average was updated since. True for 8192 samples, an
            int for another number, or a dict of ``PreciseBNHook``'s arguments. The model keeps its
            own statistics; ``buffers`` is for all other buffers.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for values out of range; at the start of a fit, for DeepSpeed, for
            ``resume_from`` where parameters are sharded, or beside a hook that swaps as mmcv's
            EMAHook does.
    """

    _reads_step = False
    _averages_weights = True
    _begin_iter = _begin_epoch = 0
    _buffers: Literal["ignore", "average", "copy"] = "ignore"
    _swap: Literal["auto", "copy"] = "auto"
    _check: Literal["sample", "all"] = "sample"
    _device: str | None = None
    _after_fit: Literal["average", "raw"] = "average"
    _validate: Literal["average", "both", "raw"] = "average"
    _precise_bn: bool | int | dict[str, Any] = False
    distinguishing: tuple[str, ...] = ("interval",)
    """Arguments of the class that distinguish two hooks in a checkpoint."""

    _average: ModuleAverage | None = None
    """The averaged tensors, from the start of the first fit on."""

    _loaded: SavedAverage | None = None  # from a checkpoint, until the average is made
    _runs = False  # from before_run to on_train_end
    _run_id = ""  # of the last fit
    _statistics: PreciseBNHook | None = None  # estimates BatchNorm statistics in a fit
    _applied: AppliedSteps | None = None
    _counted = 0  # applied steps seen so far
    _voter: AveragingHook  # the Trainer's first average
    _votes: tuple[int, Votes] = (-1, MappingProxyType({}))  # of the averages, and the iteration

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
        after_fit: Literal["average", "raw"] = "average",
        validate: Literal["average", "both", "raw"] = "average",
        precise_bn: bool | int | dict[str, Any] = False,
    ) -> None:
        check_int("interval", interval, 1)
        check_int("begin_iter", begin_iter, 0)
        check_int("begin_epoch", begin_epoch, 0)
        if begin_iter and begin_epoch:
            raise ValueError(
                "give begin_iter or begin_epoch, not both, "
                f"got begin_iter={shown(begin_iter)} and begin_epoch={shown(begin_epoch)}"
            )
        check_choice("buffers", buffers, ("ignore", "average", "copy"))
        check_choice("swap", swap, ("auto", "copy"))
        check_choice("check", check, ("sample", "all"))
        check_choice("after_fit", after_fit, ("average", "raw"))
        check_choice("validate", validate, ("average", "both", "raw"))
        PreciseBNHook.of_average(precise_bn)  # raises for a bad argument
        self.interval, self._resume_from = interval, check_path("resume_from", resume_from)
        self._buffers, self._swap, self._check = buffers, swap, check
        self._begin_iter, self._begin_epoch = begin_iter, begin_epoch
        self._device, self._precise_bn = check_device(device), precise_bn
        self._after_fit, self._validate = after_fit, validate
        self._handover = Handover()

    def _state_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments that distinguish two hooks of the class."""
        arguments = {name: getattr(self, name) for name in self._distinguishing}
        for name in ("buffers", "begin_iter", "begin_epoch"):
            value = getattr(self, f"_{name}")
            if value != getattr(AveragingHook, f"_{name}"):  # the key in files changes rarely
                arguments[name] = value
        return arguments

    # -- the rule --------------------------------------------------------------------------

    # The hook asks these three. EMAHook, whose rule is fixed, overrides them in place of the public
    # methods, whose names mmcv's EMAHook leaves to subclasses.

    @property
    def _distinguishing(self) -> tuple[str, ...]:
        return self.distinguishing

    def _model_weight(self, runner: Runner) -> float:
        return self.get_momentum(runner)

    def _is_due(self, step: int) -> bool:
        return self.updates_at(step)

    def get_momentum(self, runner: Runner) -> float:
        """Return the weight of the model in the coming update, in (0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no get_momentum(runner)")

    def updates_at(self, step: int) -> bool:
        """Whether an optimizer step, counted from 0, is followed by an update."""
        return step % self.interval == 0

    def _share_of_first_weights(self, steps: int) -> float:
        """Return the share of the first weights in the average after some optimizer steps.

        0 where the rule is unknown.
        """
        return 0.0

    @property
    def _steps(self) -> int:
        source = self._loaded or self._average
        return 0 if source is None else source.steps or 0

    @property
    def _updates(self) -> int:
        source = self._loaded or self._average
        return 0 if source is None else source.updates

    @weak_property
    def steps(self) -> int:
        """Optimizer steps since averaging began."""
        return self._steps

    @weak_property
    def updates(self) -> int:
        """Updates of the average since averaging began."""
        return self._updates

    # -- the average for others ------------------------------------------------------------

    def ema_state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with the average's values.

        Sharded parameters are DTensors; ``full_tensor()`` gathers a DTensor. Under
        ``FSDPStrategy`` all ranks must call this method, and rank 0 gets the whole values.

        Raises:
            RuntimeError: before the first fit.
        """
        if self._average is None and self._loaded is None:
            received = self._handover.receive()
            self._loaded = SavedAverage(tensors=received) if received else None
        if self._loaded is not None and self._loaded.tensors:
            return dict(self._loaded.tensors)  # not trained with: the run to go on with is over
        if self._average is None:
            name = type(self).__name__
            raise RuntimeError(f"{name} has no average yet: it starts with Trainer.fit()")
        self._repair()
        return self._average.state_dict()

    def apply_to(self, module: torch.nn.Module) -> None:
        """Load the average and its buffers into a module of the same keys.

        A sharded average is gathered for a module without shards; then all ranks must call this
        method.

        Raises:
            RuntimeError: before the first fit, or if the keys differ.
        """
        flat = self._average if self._loaded is None else None
        average = (
            flat.everywhere()
            if isinstance(flat, FlatAverage)
            else AveragingHook.ema_state_dict(self)
        )
        if not dtensors.any_sharded(module.parameters()):
            average = dtensors.gathered(average, everywhere=True)
        module.load_state_dict(mmcv_checkpoint.with_keys_of(module, average))

    def export(self, path: str) -> None:
        """Write the average alone to a file, for ``load_state_dict`` and mmcv's loader.

        Sharded parameters are gathered; then all ranks must call this method, and rank 0 writes.

        Args:
            path: A local path, or fsspec's. ``.pth``, ``.pt`` and ``.ckpt`` give a file of
                ``torch.save``, ``.safetensors`` a file for ``safetensors.torch.load_model``, with
                run, class and number of updates as metadata.

        Raises:
            RuntimeError: before the first fit.
            ValueError: for another ending, and for values other than tensors in ``.safetensors``.
            ImportError: for ``.safetensors`` without the package.
        """
        path = os.fspath(path)
        weights.check_ending(path, "export()")
        run = {"run": self._run_id} if self._run_id else {}
        facts = {**run, "average": type(self).__name__, "updates": str(self._updates)}
        weights.write_weights(AveragingHook.ema_state_dict(self), path, facts)
        if isinstance(self._average, FlatAverage):
            torch.distributed.barrier()  # the next reader may be another rank

    def _repair(self) -> None:
        if self._average is not None and (left_out := self._average.repair()):
            rank_zero_warn(
                f"{type(self).__name__} left {left_out} updates out: the model's weights were NaN "
                "or infinite, and the average stayed as before. CheckInvalidLossHook finds the "
                "bad step"
            )

    def _prepare(self, trainer: L.Trainer) -> None:
        """Repair the average and estimate its statistics, before an evaluation or a checkpoint."""
        self._repair()
        runs = trainer.state.status == TrainerStatus.RUNNING  # after an error the model may fail
        if self._average is not None and self._statistics is not None and runs:
            runner = Driver.of(trainer).runner
            self._average.estimate_statistics(partial(self._statistics.update, runner))

    # -- training --------------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Check the strategy; go on from the raw weights of an earlier fit of the module."""
        super().setup(trainer, pl_module, stage)
        driver = Driver.of(trainer)
        # weights loaded after a fit that Lightning left in a validation replace the raw weights
        driver.fit.patch(pl_module, "load_state_dict")
        driver.fit.callback(self._end_fit, trainer, stage)
        if stage != "fit":
            return
        check_strategy(self, trainer, self._resume_from)
        if self is next((hook for hook in averages_of(trainer) if hook._validate == "both"), None):
            RawValidation(trainer)
        self._loaded, self._runs = None, False
        average = self._average
        if average is not None and average.module is pl_module and not average.take_back():
            self._average = None
            line = "the module was changed since its last fit: %s begins anew with its weights"
            driver.runner.logger.info(line, class_name(self))

    def _end_fit(self, trainer: L.Trainer, stage: str) -> None:
        """Leave the average in the module after a run; restore the raw weights after an error."""
        self._statistics = None
        runner = Driver.of(trainer).runner if self._runs else None
        if runner is not None and runner.world_size == 1 and not runner.refuses_files:
            self._average_last_step(runner)
        fails = trainer.state.status != TrainerStatus.RUNNING or self._runs
        ended = stage == "fit" and not fails  # also where nothing was left to train
        self._know_first(trainer)
        if ended and self._stays(trainer):
            self._swap_in(trainer, trainer.lightning_module)
            if self._average is not None and self._average.module is trainer.lightning_module:
                self._average.leave()
        else:
            self._swap_out()
        if ended and self._average is not None and trainer.is_global_zero:
            self._handover.send(self._average.state_dict)
        self._runs = False

    def _average_last_step(self, runner: Runner) -> None:
        """Average the last step, if an error has ended the batch between step and average."""
        if self._applied is not None and self._applied.made != self._counted:
            self.after_train_iter(runner)

    def _stays(self, trainer: L.Trainer) -> bool:
        """Whether the average stays in the module after the fit."""
        return self._after_fit == "average" and self._evaluates_in(trainer)

    def before_run(self, runner: Runner) -> None:
        """Start the average: from a checkpoint, an earlier fit or the present weights."""
        trainer = runner.trainer
        if self._resume_from is not None and self._loaded is None and runner.iter == 0:
            runner.resume(self._resume_from)
            checkpoint = verification.load(self._resume_from)
            hooks = averages_of(trainer)
            present = runner.module.state_dict()
            averages = find_averages(checkpoint, present, hooks, self._resume_from)
            self._take(averages[hooks.index(self)], for_fit=True)
        self._statistics = PreciseBNHook.of_average(self._precise_bn, class_name(self))
        if self._statistics is not None:
            self._statistics.check_run(runner)
        self._wait_for_step(self._start(runner.module, goes_on=runner.iter > 0))
        self._runs, self._run_id, self._counted = True, runner.run_id, 0
        self._voter, self._votes = next(iter(averages_of(trainer)), self), (-1, {})
        self._applied = AppliedSteps(trainer, self._joined_fit)
        self._look_before_step(runner)  # also inside an epoch

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at the module before the first optimizer step of the epoch."""
        average = self._average
        if average is not None and average.module is pl_module:
            if not average.has_begun:
                average.take_buffers()
            self._look_before_step(Driver.of(trainer).runner)

    @staticmethod
    def _wait_for_step(average: ModuleAverage) -> None:
        """Begin with the first step: until then modules and callbacks may load weights."""
        if not average.steps:
            average.has_begun = False

    def _look_before_step(self, runner: Runner) -> None:
        """Look at the module before the next step."""
        if self._average is not None and self._applied is not None:
            self._applied.before_next(partial(self._look, runner))

    def _look(self, runner: Runner) -> None:
        """Average parameters added or unfrozen since the last look; begin, if due.

        First go on from a file that was loaded within the run, as a ``LearningRateFinder`` does.
        """
        if self._loaded is not None:
            self._wait_for_step(self._start(runner.module, goes_on=False))
        average, epoch = self._average, runner.trainer.current_epoch
        assert average is not None
        if names := average.new_parameters():
            self._repair()
            has_begun = average.has_begun
            average = self._make(runner.module, average.saved(), average)
            average.has_begun = has_begun
            line = "%s also averages the new %s from now on, beginning with their present values"
            runner.logger.info(line, class_name(self), listed(names))
        if not average.has_begun and self._begins(runner.iter, epoch):
            average.begin(with_buffers=False)  # a forward may have come before

    def _start(self, module: L.LightningModule, goes_on: bool) -> ModuleAverage:
        """Make the average: from a checkpoint, an earlier fit or the present weights.

        Args:
            module: The module to train.
            goes_on: Whether the run continues an earlier run of this hook.
        """
        loaded, self._loaded = self._loaded, None
        average = self._average
        if loaded is None and goes_on and average is not None and average.is_of(module):
            average.follow()
            return average
        return self._make(module, loaded)

    def _make(
        self,
        module: L.LightningModule,
        saved: SavedAverage | None,
        before: ModuleAverage | None = None,
    ) -> ModuleAverage:
        require_device(self, self._device)
        estimated = self._buffers == "ignore" and self._precise_bn is not False
        buffers = "statistics" if estimated else self._buffers
        kind = FlatAverage if isinstance(module.trainer.strategy, FSDPStrategy) else ModuleAverage
        by_copy, check_all = self._swap == "copy", self._check == "all"
        self._average = kind(module, saved, buffers, by_copy, check_all, self._device, before)
        return self._average

    def _know_first(self, trainer: L.Trainer) -> None:
        """Have the average read the module's own values where another average is in place."""
        evaluated = _evaluated(trainer) or self
        if self._average is not None:
            self._average.beside = None if evaluated is self else evaluated._average

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check what else swaps the weights; warn of a momentum or a run unfit for an average."""
        if self._evaluates_in(trainer):
            check_rivals(self, trainer)
        runner = Driver.of(trainer).runner
        momentum = getattr(self, "momentum", 0.0)
        if momentum > 0.5:
            runner.logger.warning(
                f"{class_name(self)}(momentum={momentum}): momentum is the weight of the model, so "
                "the average is almost the model itself. Momentum is 1 - decay: a decay of "
                f"{momentum} is momentum={1 - momentum:.6g}"
            )
        for unit in ("epoch", "iter"):
            begin = {f"begin_{unit}": getattr(self, f"_begin_{unit}")}
            warn_unless_reached(self, runner, "the average is the model", unit=unit, **begin)
        begins = [(self._begin_epoch, runner.max_epochs), (self._begin_iter, runner.max_iters)]
        waited = max(begin / length if length and length > 0 else 0.0 for begin, length in begins)
        self._warn_if_young(runner, (runner.max_optimizer_steps or 0) * max(0.0, 1 - waited))

    def _warn_if_young(self, runner: Runner, steps: float) -> None:
        """Warn if most of the average is still the first weights after the steps of the run."""
        trainer: Any = runner.trainer
        if math.isinf(steps) or round(steps) == 0 or trainer.fast_dev_run:
            return
        share = self._share_of_first_weights(round(steps))
        if share > 0.5:
            given = {name: getattr(self, name, None) for name in ("momentum", "warm_up")}
            arguments = ", ".join(f"{name}={v}" for name, v in given.items() if v is not None)
            runner.logger.warning(
                f"{class_name(self)}({arguments}) is validated with an average that is too young: "
                f"after the {round(steps)} optimizer steps of this run {share:.0%} of the average "
                "is still its first weights; a larger momentum, or a smaller warm_up, follows the "
                "model faster"
            )

    def before_train_epoch(self, runner: Runner) -> None:
        """Train with the raw weights."""
        self._swap_out()

    def after_train_iter(self, runner: Runner) -> None:
        """Update the average after an optimizer step."""
        average = self._average
        if average is None or self._applied is None:
            return
        counted, self._counted = self._counted, self._applied.made
        if not average.has_begun:
            # else before the first step: an iteration may have none
            if self._begin_iter and self._begins(runner.iter + 1, runner.trainer.current_epoch):
                average.begin()
        elif self._counted != counted:
            if self._is_due(average.steps):
                first, now = self._voter, runner.iter  # the averages of a step share a vote
                votes = first._votes[1] if first._votes[0] == now else None
                first._votes = now, average.update(self._model_weight(runner), votes)
            average.steps += 1

    def _begins(self, iterations: int, epoch: int) -> bool:
        return iterations >= self._begin_iter and epoch >= self._begin_epoch

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave the module with the average; warn of a young average again."""
        self._warn_if_young(Driver.of(trainer).runner, self._steps)
        self._runs = False
        if self._stays(trainer):
            self._swap_in(trainer, pl_module)
        elif self._statistics is not None:
            self._prepare(trainer)  # for an export

    # -- evaluation ------------------------------------------------------------------------

    def after_train_epoch(self, runner: Runner) -> None:
        """Evaluate with the average, until the validation or the epoch has ended."""
        self._swap_in(runner.trainer, runner.module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validate with the average, also during an epoch; check a resumed run with the average."""
        if not trainer.sanity_checking or progress.batches(trainer).total.ready > 0:
            self._swap_in(trainer, pl_module)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Test and predict with the average."""
        self._swap_in(trainer, pl_module)

    on_predict_start = on_test_start

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restore the raw weights: after evaluation, or an epoch without validation."""
        self._swap_out()

    on_test_end = on_predict_end = on_train_epoch_end = on_validation_end

    def _swap_in(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Put the average in place; not where a loaded file is evaluated, whose weights are it."""
        loaded = self._loaded
        if trainer.state.fn == TrainerFn.FITTING and loaded is not None and loaded.tensors:
            self._start(module, goes_on=False)
        average = self._average if self._loaded is None else None
        if average is not None and average.module is module and self._evaluates_in(trainer):
            self._prepare(trainer)
            average.swap_in()

    @contextlib.contextmanager
    def _around_evaluation(self, trainer: L.Trainer) -> Iterator[None]:
        """Put the average in place, in the block, for an evaluation by a hook in an iteration."""
        was_in = self._average is not None and self._average.swap.is_in
        self._swap_in(trainer, trainer.lightning_module)
        try:
            yield
        finally:
            if not was_in:
                self._swap_out()

    def _evaluates_in(self, trainer: L.Trainer) -> bool:
        """Whether the Trainer evaluates with this average."""
        return _evaluated(trainer) is self

    def _swap_out(self) -> None:
        if self._average is not None:
            self._average.swap_out()

    # -- checkpoints -----------------------------------------------------------------------

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the averages of all hooks, in the first hook's turn."""
        hooks = averages_of(file.trainer)
        if hooks[0] is self:
            for hook in hooks:
                hook._know_first(file.trainer)
            write_averages(file, [hook._saved(file.trainer) for hook in hooks])

    def _saved(self, trainer: L.Trainer) -> SavedAverage:
        """Return the average for a checkpoint."""
        of, evaluated = Identity.of(self), self._evaluates_in(trainer)
        if self._loaded is not None:  # not started yet: a tuner saves before the run
            fits = trainer.state.fn == TrainerFn.FITTING
            loaded = self._loaded if fits else SavedAverage()
            return dataclasses.replace(loaded, of=of, is_validated=evaluated)
        average = self._average
        if average is None or average.module is not trainer.lightning_module or average.was_changed:
            return SavedAverage(of)
        self._prepare(trainer)
        saved = average.saved(of, evaluated)
        return dataclasses.replace(saved, is_estimated=average.is_estimated)

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Take the averages of all hooks, in the first hook's turn."""
        hooks = averages_of(file.trainer)
        if hooks[0] is not self:
            return
        path, own = str(file.trainer.ckpt_path), present_state(file.trainer)
        averages = find_averages(file.contents, own, hooks, path)
        for hook, saved in zip(hooks, averages, strict=True):
            is_known = saved is None or saved.has_names_of(own)
            if file.resumes and not is_known:
                rank_zero_warn(
                    f"{Identity.of(hook)} begins anew: its average in {path} has no name of the "
                    "module's. If the module renames weights in on_save_checkpoint, have "
                    "state_dict() and load_state_dict() rename them"
                )
            hook._take(saved if is_known else SavedAverage(), for_fit=file.resumes)
            if hook._runs:
                hook._look_before_step(Driver.of(file.trainer).runner)
        if file.resumes and any(saved is not None and saved.is_validated for saved in averages):
            restore_raw_weights(file)

    def _take(self, saved: SavedAverage | None, *, for_fit: bool) -> None:
        """Continue with a checkpoint's average; None if the checkpoint has none."""
        if saved is None and for_fit:
            rank_zero_warn(finds_none("no average", Identity.of(self)))
        self._swap_out()  # else the file's weights are loaded into the average
        self._loaded = loaded = saved or SavedAverage()
        if loaded.steps is None:  # a file of Lightning's counts the updates only
            loaded.steps = loaded.updates * self.interval

    def __getstate__(self) -> dict[str, Any]:
        # a copy has the same arguments and no state of a run
        state = super().__getstate__()
        kept = {k: v for k, v in state.items() if not k.startswith("_") or k in ARGUMENTS}
        return {**kept, "_handover": self._handover.of_copy()}


def _evaluated(trainer: L.Trainer) -> AveragingHook | None:
    """Return the average that a Trainer evaluates with, the first."""
    return next((hook for hook in averages_of(trainer) if hook._validate != "raw"), None)


def averages_of(trainer: L.Trainer) -> list[AveragingHook]:
    """Return the averages of a Trainer, in the order given."""
    return [hook for hook in Driver.of(trainer).roster.hooks if isinstance(hook, AveragingHook)]
