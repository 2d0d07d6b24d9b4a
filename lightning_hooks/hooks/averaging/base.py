"""``AveragingHook``: evaluate with an average of the weights; save, load and export the average."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from functools import partial
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.driver.collect import hooks_of
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_states import Identity, finds_none
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.lightning_api.weight_averaging import restore_raw_weights
from lightning_hooks.engine.runner import mmcv_checkpoint
from lightning_hooks.hooks.averaging.checks import check_strategy
from lightning_hooks.hooks.averaging.module_average import ModuleAverage
from lightning_hooks.hooks.averaging.saved_average import (
    SavedAverage,
    find_averages,
    write_averages,
)
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from lightning_hooks.storage import torch_files
from lightning_hooks.utils import dtensors

__all__ = ["AveragingHook", "averages_of"]


class AveragingHook(Hook):
    """Trains with the raw weights and evaluates with their average.

    The module has the average's values from ``after_train_epoch`` (for hooks of lower priority
    that evaluate at this point) to the end of the validation, and in ``Trainer.validate``, ``test``
    and ``predict``; after an error or an interrupt the module has the raw weights. A Trainer with
    several averages evaluates with the first. A subclass starts and updates the average.

    =======================  =================================================================
    key in a checkpoint      value
    =======================  =================================================================
    ``state_dict``           the evaluated average, so that ``ckpt_path`` and
                             ``load_from_checkpoint`` give the validation's score
    ``current_model_state``  the raw weights, from which a resumed run trains on
    ``averaging_state``      ``n_averaged``, the number of updates
    ``lightning_hooks``      ``averages``: class, arguments, ``steps`` and ``updates`` of each
                             average, and the ``state_dict`` of each but the first
    =======================  =================================================================

    The first three keys are the keys of Lightning's ``WeightAveraging``: either can resume from the
    other's files. A resumed run finds an average by its class and its place among the averages of
    the class; different arguments decide first, see :mod:`lightning_hooks.engine.hook_states`.
    Without an average a resumed run still trains on from the raw weights, if any hook of this
    package is in the Trainer.

    With ``ModelParallelStrategy`` each rank averages its shards. A checkpoint of one file has all
    averages whole, gathered on rank 0's CPU; in a checkpoint directory the ``state_dict`` is
    sharded, and ``meta.pt``, read by every rank on resume, has the other averages whole.
    ``FSDPStrategy`` and ``DeepSpeedStrategy`` are refused: FSDP's slices have names and shapes only
    while every rank holds the whole model, DeepSpeed partitions the trained weights and keeps the
    weights in another precision.

    Raises:
        ValueError: at the start of a fit, for a strategy that flattens or partitions the
            parameters (FSDP, DeepSpeed).
    """

    reads_step = False
    buffers: Literal["ignore", "average", "copy"] = "ignore"
    swap: Literal["auto", "copy"] = "auto"
    check: Literal["sample", "all"] = "sample"
    device: str | None = None
    precise_bn: bool | int | dict[str, Any] = False
    _statistics: PreciseBNHook | None = None  # estimates BatchNorm statistics in a fit
    _average: ModuleAverage | None = None
    _steps = _updates = 0
    _loaded: SavedAverage | None = None  # from a checkpoint, until the average is made
    _is_evaluated: bool | None = None  # None: the first average is evaluated
    _earlier: tuple[weakref.ref[L.LightningModule], ...] = ()  # modules of earlier fits
    _patches: tuple[MethodPatch, ...] = ()

    def start(self, module: L.LightningModule, goes_on: bool) -> ModuleAverage:
        """Make the average: from a checkpoint, an earlier fit or the present weights.

        Args:
            module: The module to train.
            goes_on: Whether the run continues an earlier run of this hook.
        """
        self._swap_out()
        loaded, self._loaded = self._loaded, None
        old = self._average
        if loaded is None and goes_on and old is not None and old.is_of(module):
            old.follow()
            return old
        if old is not None:
            self._earlier = (*self._earlier, weakref.ref(old.module))
        start = {} if loaded is None else loaded.tensors
        if not start:
            self._steps = self._updates = 0
        estimated = self.buffers == "ignore" and self.precise_bn is not False
        buffers = "statistics" if estimated else self.buffers
        self._average = ModuleAverage(
            module, start, buffers, self.swap == "copy", self.check == "all", self.device
        )
        return self._average

    # -- the average for others ------------------------------------------------------------

    def ema_state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with the average's live tensors.

        Sharded parameters are DTensors; ``full_tensor()`` gathers a DTensor.

        Raises:
            RuntimeError: before the first fit.
        """
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
        average = self.ema_state_dict()
        if not dtensors.any_sharded(module.parameters()):
            average = dtensors.gathered(average, everywhere=True)
        module.load_state_dict(mmcv_checkpoint.with_keys_of(module, average))

    def export(self, path: str) -> None:
        """Write the average alone to a file, for ``load_state_dict`` and mmcv's loader.

        Sharded parameters are gathered; then all ranks must call this method, and rank 0 writes.
        """
        torch_files.save_state_dict(self.ema_state_dict(), path)

    # -- evaluation ------------------------------------------------------------------------

    def before_train_epoch(self, runner: Any) -> None:
        """Train with the raw weights."""
        self._swap_out()

    def after_train_epoch(self, runner: Any) -> None:
        """Evaluate with the average, until the validation or the epoch has ended."""
        self._swap_in(runner.trainer, runner.module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validate with the average, also during an epoch and outside of a fit."""
        if not trainer.sanity_checking:
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
        if self._loaded is not None and self._loaded.tensors:  # evaluated without a fit
            check_strategy(self, trainer)
            self.start(module, goes_on=False)
        average = self._average if self._loaded is None else None
        if average is not None and self._evaluates_in(trainer):
            if average.module is module:
                self._prepare(trainer)
                average.swap_in()
            elif module in [earlier() for earlier in self._earlier]:
                rank_zero_warn(
                    f"{class_name(self)} averages the model of a later fit now: this model is "
                    "evaluated with its raw weights. Give each Trainer its own hook"
                )

    def _evaluates_in(self, trainer: L.Trainer) -> bool:
        if self._is_evaluated is not None:  # as it was in the checkpoint that is evaluated
            return self._is_evaluated
        return averages_of(trainer)[0] is self

    def _swap_out(self) -> None:
        if self._average is not None:
            self._average.swap_out()

    def _prepare(self, trainer: L.Trainer) -> None:
        """Repair the average and estimate its statistics, before an evaluation or a checkpoint."""
        self._repair()
        runs = trainer.state.status == TrainerStatus.RUNNING  # after an error the model may fail
        if self._average is not None and self._statistics is not None and runs:
            runner = Driver.of(trainer).runner
            self._average.estimate_statistics(partial(self._statistics.update, runner))

    def _repair(self) -> None:
        if self._average is not None and (left_out := self._average.repair()):
            rank_zero_warn(
                f"{type(self).__name__} left {left_out} updates out: the model's weights were NaN "
                "or infinite, and the average stayed as before. CheckInvalidLossHook finds the "
                "bad step"
            )

    # -- checkpoints -----------------------------------------------------------------------

    def _save(self, trainer: L.Trainer, checkpoint: dict[str, Any], *_: Any, **__: Any) -> None:
        """Save the averages of all hooks, at the event of the first hook."""
        hooks = averages_of(trainer)
        if hooks and hooks[0] is self:
            averages = [hook._saved(trainer) for hook in hooks]
            evaluated = next((h for h in hooks if h._evaluates_in(trainer)), self)
            write_averages(checkpoint, averages, evaluated._raw_state_dict(trainer))

    def _saved(self, trainer: L.Trainer) -> SavedAverage:
        of, evaluated = Identity.of(self), self._evaluates_in(trainer)
        if self._loaded is not None:  # not started yet: a tuner saves before the run
            return dataclasses.replace(self._loaded, of=of, is_validated=evaluated)
        average = self._average
        if average is None or average.module is not trainer.lightning_module:
            return SavedAverage(of)
        self._prepare(trainer)
        return SavedAverage(of, average.state_dict(), self._steps, self._updates, evaluated)

    def _raw_state_dict(self, trainer: L.Trainer) -> dict[str, Any]:
        module, average = trainer.lightning_module, self._average
        if average is not None and average.module is module:
            return average.raw_state_dict()
        return module.state_dict()

    def _load(self, trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
        """Load the averages of all hooks, at the event of the first hook."""
        hooks = averages_of(trainer)
        if not hooks or hooks[0] is not self:
            return
        found = find_averages(checkpoint, trainer.lightning_module, hooks)
        for hook, saved in zip(hooks, found, strict=True):
            hook._take(saved, for_fit=trainer.state.fn == TrainerFn.FITTING)
        if any(saved is not None and saved.is_validated for saved in found):
            restore_raw_weights(trainer, checkpoint)

    def _take(self, saved: SavedAverage | None, *, for_fit: bool) -> None:
        """Continue with a checkpoint's average; None if the checkpoint has none."""
        if saved is None and for_fit:
            rank_zero_warn(finds_none("no average", Identity.of(self)))
        self._loaded = loaded = saved or SavedAverage()
        self._steps, self._updates = loaded.steps or 0, loaded.updates or 0
        self._is_evaluated = None if for_fit else loaded.is_validated

    def __getstate__(self) -> dict[str, Any]:
        # a copy has the same arguments and no state of a run
        state = super().__getstate__()
        return {key: value for key, value in state.items() if not key.startswith("_")}

    # -- start and end of a run ------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Check the strategy; patch the module's checkpoint events, also for weights-only files."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            check_strategy(self, trainer)
            self._is_evaluated = None
        self._remove_patches()
        self._patches = (
            MethodPatch(pl_module, "on_save_checkpoint", partial(self._save, trainer)),
            MethodPatch(pl_module, "on_load_checkpoint", partial(self._load, trainer)),
        )

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Clean up without raising: a second error would hide the first."""
        with contextlib.suppress(Exception):
            self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the module and the optimizers."""
        self._swap_out()
        self._remove_patches()
        # files saved after the run are written by the strategy alone
        save = partial(self._save, trainer)
        self._patches = (MethodPatch(trainer.strategy, "save_checkpoint", save),)

    def _remove_patches(self) -> None:
        for patch in self._patches:
            patch.remove()
        self._patches = ()


def averages_of(trainer: L.Trainer) -> list[AveragingHook]:
    """Return the averages of a Trainer, in the order given."""
    return [hook for hook in hooks_of(trainer) if isinstance(hook, AveragingHook)]
