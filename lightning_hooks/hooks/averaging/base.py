"""A hook with an average of the weights: evaluated with, saved beside the raw ones, exported."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.runner import mmcv_checkpoint
from lightning_hooks.hooks.averaging.checkpoint_keys import found_average, write_average
from lightning_hooks.hooks.averaging.module_average import ModuleAverage
from lightning_hooks.storage import files
from lightning_hooks.utils import dtensors

__all__ = ["AveragingHook"]


class AveragingHook(Hook):
    """Evaluates with an average of the weights and trains with the raw ones.

    The module has the average's values from ``after_train_epoch`` on (so for hooks of lower
    priority that evaluate there) to the end of the validation, and in ``Trainer.validate``,
    ``test`` and ``predict``. An error or an interrupt puts the raw values back. Of several such
    hooks in a Trainer it is the first that is evaluated with.

    =====================  ===================================================================
    key in a checkpoint    value
    =====================  ===================================================================
    state_dict             the raw weights, always
    ema_state_dict         the same keys with the average; of a second such hook under
                           ``ema_state_dicts[state_key]``
    =====================  ===================================================================

    A subclass says when the average is made (``start``) and updates it.

    With ``ModelParallelStrategy`` each rank averages its shards. ``ema_state_dict`` of a checkpoint
    is the whole average then, gathered on rank 0's CPU; of a directory it is in ``meta.pt``, which
    every rank reads when it resumes.

    Not with ``FSDPStrategy`` and ``DeepSpeedStrategy``. The one makes slices of flattened
    parameters, which have names and shapes only while all ranks gather them: to save, load or
    evaluate an average, every rank would hold the whole model. The other keeps the weights that
    it trains inside of its engine, partitioned and in another precision. With FSDP2
    (``ModelParallelStrategy``) there is no need for either.

    Raises:
        ValueError: at the start of a fit, for another strategy that flattens or partitions the
            parameters (FSDP, DeepSpeed).
    """

    reads_step = False
    buffers: Literal["ignore", "average", "copy"] = "ignore"
    swap: Literal["auto", "copy"] = "auto"
    check: Literal["sample", "all"] = "sample"
    device: str | None = None
    _average: ModuleAverage | None = None
    _loaded: dict[str, Any] | None = None  # from a checkpoint, until the average is made
    _steps = 0
    _listening: tuple[MethodPatch, ...] = ()

    def start(self, module: L.LightningModule, goes_on: bool) -> None:
        """Make the average: from a checkpoint's, an earlier fit's, or the weights.

        Args:
            module: The module to train.
            goes_on: The run goes on where an earlier one ended, whose average may be there.
        """
        self._take_out()
        loaded, self._loaded = self._loaded, None
        old = self._average
        if loaded is None and goes_on and old is not None and old.is_of(module):
            old.follow()
            return
        if not loaded:
            self._steps = 0
        self._average = ModuleAverage(
            module, loaded, self.buffers, self.swap == "copy", self.check == "all", self.device
        )

    # -- the average for others ------------------------------------------------------------

    def ema_state_dict(self) -> dict[str, Any]:
        """Return the module's state dict with the average in it; the tensors are the live ones.

        Of sharded parameters it has DTensors: ``full_tensor()`` of one is the whole.

        Raises:
            RuntimeError: if there is no average before the first fit.
        """
        if self._loaded:  # and not trained with: the run that was to go on is over
            return dict(self._loaded)
        if self._average is None:
            name = type(self).__name__
            raise RuntimeError(f"{name} has no average yet: it starts with Trainer.fit()")
        self._mend()
        return self._average.state_dict()

    def apply_to(self, module: torch.nn.Module) -> None:
        """Load the average, with the buffers that go with it, into a module of the same keys.

        A module that is not sharded gets the whole of a sharded average. All ranks call this then.

        Raises:
            RuntimeError: if there is no average yet, or the keys differ.
        """
        average = self.ema_state_dict()
        if not dtensors.any_sharded(module.parameters()):
            average = dtensors.gathered(average, everywhere=True)
        module.load_state_dict(mmcv_checkpoint.with_keys_of(module, average))

    def export(self, path: str) -> None:
        """Write a file of the average alone, for ``load_state_dict`` and mmcv's loader.

        The whole average, also of sharded parameters: all ranks call this then, rank 0 writes.
        """
        files.save_state_dict(self.ema_state_dict(), path)

    # -- evaluation ------------------------------------------------------------------------

    def before_train_epoch(self, runner: Any) -> None:
        """Train with the raw weights."""
        self._take_out()

    def after_train_epoch(self, runner: Any) -> None:
        """Evaluate with the average, until the validation or the epoch has ended."""
        self._put_in(runner.trainer, runner.module)

    def _put_in(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self._loaded:  # evaluated without a fit, from a checkpoint
            self._check_strategy(trainer)
            self.start(module, goes_on=False)
        first = self.name_in_file(trainer) is None  # two in turn would take out each other's
        average = self._average if self._loaded is None else None
        if first and average is not None and average.module is module:
            self._mend()
            average.put_in()

    def _mend(self) -> None:
        left_out = 0 if self._average is None else self._average.mend()
        if left_out:
            rank_zero_warn(
                f"{type(self).__name__} left {left_out} updates out: the model's weights were NaN "
                "or infinite then, and the average stayed as it was. CheckInvalidLossHook finds "
                "the step that did it"
            )

    def _take_out(self) -> None:
        if self._average is not None:
            self._average.take_out()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validate with the average, also in mid-epoch and outside of a fit."""
        if not trainer.sanity_checking:
            self._put_in(trainer, pl_module)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Test and predict with the average."""
        self._put_in(trainer, pl_module)

    on_predict_start = on_test_start

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put the raw weights back: after evaluation, or an epoch without validation."""
        self._take_out()

    on_test_end = on_predict_end = on_train_epoch_end = on_validation_end

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Put the raw weights back; an error here would hide the one that is raised."""
        with contextlib.suppress(Exception):
            self._take_out()
            self._leave_module(trainer)

    # -- checkpoints -----------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Listen to checkpoints: weights-only ones are an event of the module alone."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            self._check_strategy(trainer)
        self._stop_listening()
        self._listening = (
            MethodPatch(pl_module, "on_save_checkpoint", partial(self._save, trainer)),
            MethodPatch(pl_module, "on_load_checkpoint", partial(self._load, trainer)),
        )

    def _check_strategy(self, trainer: L.Trainer) -> None:
        strategy = trainer.strategy
        if strategy.restore_checkpoint_after_setup and not isinstance(
            strategy, ModelParallelStrategy
        ):
            raise ValueError(
                f"{type(self).__name__} does not work with {type(strategy).__name__}, whose "
                "parameters are not the module's own; use ModelParallelStrategy, with "
                "torch's fully_shard() in configure_model(), or the strategy 'ddp'"
            )

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Give the module back as it was."""
        self._take_out()
        self._leave_module(trainer)

    def _leave_module(self, trainer: L.Trainer) -> None:
        """Listen to the strategy from now on: it writes what is saved after the run, too."""
        self._stop_listening()
        late = MethodPatch(trainer.strategy, "save_checkpoint", partial(self._save_late, trainer))
        self._listening = (late,)

    def _stop_listening(self) -> None:
        for one in self._listening:
            one.remove()
        self._listening = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the count of optimizer steps that the average goes by."""
        return {"steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the count, if there is an average that it belongs to."""
        if self._loaded:
            self._steps = state_dict["steps"]

    def _save_late(
        self, trainer: L.Trainer, checkpoint: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        self._save(trainer, checkpoint)

    def _save(self, trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
        state = checkpoint.get("state_dict", {})
        average = self._loaded  # not started yet: a tuner saves and restores before the run
        if average is None and self._average and self._average.module is trainer.lightning_module:
            self._mend()
            if self._average.swap.is_in:
                raw = self._average.raw_state_dict()
                # as the strategy has them: parts for a directory, else the whole on rank 0
                parts = dtensors.any_sharded(state.values())
                raw = (
                    {dtensors.plain(k): v for k, v in raw.items()}
                    if parts
                    else dtensors.gathered(raw)
                )
                state.update({key: value for key, value in raw.items() if key in state})
            average = dtensors.gathered(self._average.state_dict())
            average = {key: value for key, value in average.items() if key in state}
        if average:
            write_average(checkpoint, average, self.name_in_file(trainer))

    def _load(self, trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
        self._loaded, self._steps = found_average(checkpoint, self.name_in_file(trainer))

    def name_in_file(self, trainer: L.Trainer) -> str | None:
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        first = next((c for c in callbacks if isinstance(c, AveragingHook)), self)
        return None if first is self else self.state_key

    def __getstate__(self) -> dict[str, Any]:
        # a copy is a hook of the same arguments: what belongs to a run stays with it
        state = super().__getstate__()
        return {key: value for key, value in state.items() if not key.startswith("_")}
