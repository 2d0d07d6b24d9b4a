"""The loops of mmengine: ``runner.train_loop``, ``val_loop``, ``test_loop``, and ``Evaluation``."""

from __future__ import annotations

import contextlib
import sys
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, ClassVar

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.hosting import Facade
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import callback_list, data
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.lightning_api.model_state import keep_train_flags
from lightning_hooks.engine.lightning_api.releases import val_check_batch
from lightning_hooks.engine.lightning_api.validation import ExtraPass
from lightning_hooks.engine.runner.model_wrapper import takes_batch_idx
from lightning_hooks.engine.runner.runner import training_loader
from lightning_hooks.utils.arguments import shown

__all__ = ["Evaluation", "TestLoop", "TrainLoop", "ValLoop"]


class _Loop:
    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self.native_runner = facade.native_runner
        self._library_name = type(self).__name__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """mmengine's class, if loaded, for ``isinstance(runner.train_loop, ...)``."""
        return getattr(sys.modules.get("mmengine.runner"), self._library_name, type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; warn if the attribute controls mmengine's loop and not Lightning's."""
        object.__setattr__(self, name, value)
        if name in _WITHOUT_EFFECT:
            self.native_runner.logger.warning(
                "a hook assigns %s_loop.%s = %r without effect: Lightning counts, and validates "
                "according to the arguments of the Trainer",
                *(type(self).__name__[:-4].lower(), name, value),
            )


_WITHOUT_EFFECT = (
    *("_epoch", "_iter", "val_begin", "dynamic_milestones", "dynamic_intervals", "fp16"),
)
"""Attributes with effect in mmengine's loops and without effect in Lightning's."""


class TrainLoop(_Loop):
    """mmengine's ``runner.train_loop``: counters, length and loader of the training."""

    def __init__(self, facade: Any) -> None:
        super().__init__(facade)
        by_epoch = self.native_runner.counts_epochs
        self._library_name = f"{'Epoch' if by_epoch else 'Iter'}BasedTrainLoop"
        # mmengine's loop of epochs keeps its length if a hook replaces the loader
        self._length = self.native_runner.max_iters if by_epoch else None
        self._in_epoch = self._stops = False

    iter = property(attrgetter("native_runner.iter"))
    """Number of finished iterations."""
    epoch = property(
        lambda self: self.native_runner.epoch if self.native_runner.counts_epochs else 0
    )
    """Number of finished epochs; 0 in a run counted in iterations."""
    max_iters = property(attrgetter("_max_iters"))
    """Number of iterations of the run; assign ``_max_iters`` to change it."""
    max_epochs = property(attrgetter("_max_epochs"))
    """Number of epochs of the run; assign ``_max_epochs`` to change it."""
    val_begin = 1
    """The first epoch, or iteration, that may be validated."""

    @property
    def stop_training(self) -> bool:
        """Whether training ends, in an epoch at the epoch's end; can be assigned."""
        return self._stops or self.native_runner.should_stop

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._stops = value
        if not self._in_epoch:
            self.native_runner.should_stop = value

    def begin_epoch(self) -> None:
        """Have a later ``stop_training`` wait for the end of the epoch."""
        self._in_epoch = True

    def end_epoch(self) -> None:
        """End the run if ``stop_training`` was set in the epoch."""
        self._in_epoch = False
        if self._stops:
            self.native_runner.should_stop = True

    @property
    def _max_iters(self) -> Any:
        return self.native_runner.max_iters if self._length is None else self._length

    @_max_iters.setter
    def _max_iters(self, value: int) -> None:
        self.native_runner._max_iters = value
        self._length = value if self.native_runner.counts_epochs else None

    @property
    def _max_epochs(self) -> Any:
        return self.native_runner.max_epochs if self.native_runner.counts_epochs else 1

    @_max_epochs.setter
    def _max_epochs(self, value: int) -> None:
        self.native_runner._max_epochs = value

    @property
    def val_interval(self) -> Any:
        """Number of epochs, or iterations, between two validations."""
        trainer = self.native_runner.trainer
        batches = None if self.native_runner.counts_epochs else val_check_batch(trainer)
        return batches or trainer.check_val_every_n_epoch

    @property
    def dataloader(self) -> Any:
        """The training loader; an assigned loader is used from the next epoch on."""
        return training_loader(self.native_runner)

    @dataloader.setter
    def dataloader(self, value: Any) -> None:
        self.native_runner.new_data_loader = self.native_runner.loader_of_run = value

    def _switch_loader(self, value: Any) -> None:
        loader = getattr(value, "_dataloader", None)
        if loader is None:
            raise TypeError(
                f"train_loop.dataloader_iterator must be mmengine's iterator, got {shown(value)}"
            )
        self.native_runner.new_data_loader = None
        data.switch_loader(self.native_runner.trainer, loader)

    dataloader_iterator = property(fset=_switch_loader)
    """An assigned iterator of mmengine's yields the next batch."""

    @property
    def metainfo(self) -> Any:
        """The training set's ``metainfo``, None if undefined."""
        return getattr(getattr(self.dataloader, "dataset", None), "metainfo", None)

    def warn_of_last_validation(self) -> None:
        """Warn if mmengine would validate at the end of the run and the Trainer does not."""
        runner = self.native_runner
        by = "epoch" if runner.counts_epochs else "iteration"
        length = self.max_epochs if runner.counts_epochs else self.max_iters
        interval = self.val_interval if runner.trainer.enable_validation else None
        are_counts = isinstance(interval, int) and isinstance(length, int) and length > 0
        if are_counts and length % interval:
            runner.logger.warning(
                "mmengine validates after the last %s too; this run ends with %s %d, unvalidated, "
                "since the Trainer validates every %d; make the length a multiple of the interval",
                *(by, by, length, interval),
            )


class _EvaluationLoop(_Loop):
    stage: ClassVar[str]
    step_name: ClassVar[str]

    def __init__(self, facade: Any) -> None:
        super().__init__(facade)
        self._pass: ExtraPass | None = None

    @property
    def evaluator(self) -> SimpleNamespace:
        """``evaluate(size)`` ends the pass started by ``run_iter``, and returns the metrics."""
        return SimpleNamespace(evaluate=lambda size: self.finish())

    @property
    def dataloader(self) -> Any:
        """The loader, a list of several, None without a loader."""
        loaders = getattr(self.native_runner.trainer, f"{self.stage}_dataloaders")
        return loaders[0] if isinstance(loaders, list) and len(loaders) == 1 else loaders

    @property
    def total_length(self) -> int:
        """Number of batches of a pass."""
        return int(sum(getattr(self.native_runner.trainer, f"num_{self.stage}_batches")))

    def run_iter(self, idx: int, data_batch: Any, dataloader_idx: int | None = None) -> None:
        """Run a batch in an extra pass, with the points of a step.

        Args:
            idx: Number of the batch.
            data_batch: The batch.
            dataloader_idx: Number of the batch's loader, required if the Trainer has several
                loaders.

        Raises:
            ValueError: without ``dataloader_idx`` in a Trainer with several loaders.
        """
        runner, stage = self.native_runner, self.stage
        self._pass = self._pass or ExtraPass(runner.trainer, stage)
        if dataloader_idx is None and self._pass.loaders() > 1:
            raise ValueError(
                f"{stage}_loop.run_iter: the Trainer has {self._pass.loaders()} loaders, mmengine "
                f"has one loader; write {stage}_loop.run(), or run_iter(idx, batch, dataloader_idx)"
            )
        takes_idx = takes_batch_idx(getattr(type(runner.module), self.step_name))
        now = {"mode": stage, "data_batch": data_batch, "_stale_inner_iter": idx}
        with setting(runner, **now, outputs={}, result=None):
            self._facade.call_hook(f"before_{stage}_iter")
            with setting(runner, calls_hooks=False):  # the model runs a step, not a hook's own call
                result = self._pass.step(data_batch, idx, takes_idx, dataloader_idx)
                runner.take_result(result)
            self._facade.call_hook(f"after_{stage}_iter")

    def finish(self) -> dict[str, float]:
        """End the pass; return the metrics."""
        done, self._pass = self._pass, None
        with setting(self.native_runner, calls_hooks=False):
            return {} if done is None else done.finish()

    def run(self) -> dict[str, float]:
        """Run an extra pass with all points, and restore the train flags; return the metrics."""
        facade, stage = self._facade, self.stage
        with keep_train_flags(self.native_runner.module), setting(self.native_runner, mode=stage):
            points = f"before_{stage}", f"before_{stage}_epoch"
            for step in (facade.prepare, facade.call_hook):
                for point in points:
                    step(point)
            self.native_runner.module.eval()
            self._pass = ExtraPass(self.native_runner.trainer, stage)
            for batch, idx, dataloader_idx in self._pass.batches():
                self.run_iter(idx, batch, dataloader_idx)
            facade.metrics = metrics = self.finish()
            with setting(facade, _training=False):
                for point in (f"after_{stage}_epoch", f"after_{stage}"):
                    facade.write_info(point)
                    facade.call_hook(point)
        return metrics


class ValLoop(_EvaluationLoop):
    """mmengine's ``runner.val_loop``, for hooks that run a validation."""

    stage, step_name = "val", "validation_step"


class TestLoop(_EvaluationLoop):
    """mmengine's ``runner.test_loop``, for hooks that run a test."""

    __test__ = False  # for pytest
    stage, step_name = "test", "test_step"


_STAGES: dict[TrainerFn | None, str] = {TrainerFn.TESTING: "test", TrainerFn.VALIDATING: "val"}


class Evaluation(Callback):
    """Calls mmengine's points in ``Trainer.test`` and in ``Trainer.validate`` outside of a fit.

    The points are ``before_run``, ``before_test``, ``before_test_epoch``, ``before_test_iter`` and
    ``after_test_iter`` for each step, ``after_test_epoch`` with the logged values, ``after_test``
    and ``after_run``; in a validation with ``val`` for ``test``. After a fit of the same Trainer
    the hooks get the runner and the message hub of the fit.

    Args:
        dialect: The mmengine dialect.
        stage: ``test`` or ``val``.
    """

    _facade: Facade
    _model: Any  # the model before any assignment by a hook

    def __init__(self, dialect: Dialect, stage: str) -> None:
        self._dialect, self._stage = dialect, stage
        self._run = contextlib.ExitStack()

    @staticmethod
    def join(trainer: L.Trainer, dialect: Dialect) -> None:
        """Add an ``Evaluation`` to the Trainer's callbacks until the evaluation ends."""
        stage = _STAGES.get(trainer.state.fn)
        if stage is not None and not any(isinstance(c, Evaluation) for c in callbacks_of(trainer)):
            callback_list.add(trainer, Evaluation(dialect, stage))

    def _call(self, *points: str) -> None:
        for point in points:
            self._facade.prepare(point)
            self._facade.call_hook(point)
            self._take_model()

    def _take_model(self) -> None:
        """Evaluate a model assigned by a hook, such as mmengine's PrepareTTAHook."""
        runner = self._facade.native_runner
        if runner.model is not self._model:
            Driver.of(runner.trainer).model_watch.take()
            runner.module.eval()

    def _end(self) -> None:
        """End the run, and restore the model."""
        self._facade.native_runner.model = self._model
        self._facade.end()

    # -- Lightning's events ----------------------------------------------------------------

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``before_run``, ``before_test``, ``before_test_epoch``."""
        stage = self._stage
        runner = Driver.of(trainer).prepare(trainer, pl_module)
        runner.mode = stage
        self._model = runner.model
        if self._dialect.name not in runner.dialect_facades:  # else the fit has announced
            runner.announce_misspelt()
        self._facade = self._dialect.facade_for_evaluation(runner)
        self._run.callback(self._end)
        self._call("before_run", f"before_{stage}", f"before_{stage}_epoch")

    def on_test_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int, *_: int
    ) -> None:
        """Call ``before_test_iter``."""
        runner = self._facade.native_runner
        runner.data_batch, runner.inner_iter = batch, batch_idx
        self._call(f"before_{self._stage}_iter")

    def on_test_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *batch: Any
    ) -> None:
        """Call ``after_test_iter``."""
        runner = self._facade.native_runner
        runner.take_result(outputs)
        self._call(f"after_{self._stage}_iter")
        del runner.data_batch

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call ``after_test_epoch``, ``after_test``, ``after_run``."""
        self._call(f"after_{self._stage}_epoch", f"after_{self._stage}", "after_run")
        self._run.close()

    on_validation_start = on_test_start
    on_validation_batch_start = on_test_batch_start  # type: ignore[assignment]
    on_validation_batch_end = on_test_batch_end  # type: ignore[assignment]
    on_validation_end = on_test_end

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the ``Evaluation`` from the Trainer's callbacks."""
        self._run.close()
        callback_list.leave(trainer, self)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Remove the ``Evaluation`` also after an error."""
        self.teardown(trainer, pl_module, self._stage)
