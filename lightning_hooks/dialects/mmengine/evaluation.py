"""``Evaluation``: mmengine's points in ``Trainer.test`` and ``Trainer.validate``."""

from __future__ import annotations

import contextlib
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.engine.driver.driver import Driver

__all__ = ["Evaluation"]

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
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        stage = _STAGES.get(trainer.state.fn)
        if stage is not None and not any(isinstance(c, Evaluation) for c in callbacks):
            callbacks.append(Evaluation(dialect, stage))

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
        runner = self._facade.native_runner
        if runner.model is not self._model:
            runner.model = self._model
            Driver.of(runner.trainer).model_watch.take()
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
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        trainer.callbacks = [c for c in callbacks if c is not self]  # type: ignore[attr-defined]

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Remove the ``Evaluation`` also after an error."""
        self.teardown(trainer, pl_module, self._stage)
