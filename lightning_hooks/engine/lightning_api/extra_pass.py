"""``ExtraPass``: steps of a validation or test besides those of Lightning's loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
from lightning.pytorch.trainer.states import RunningStage

from lightning_hooks.engine.lightning_api.data import prepare_batch
from lightning_hooks.engine.lightning_api.logged_values import epoch_means
from lightning_hooks.engine.lightning_api.validation import evaluation_loop

__all__ = ["ExtraPass"]

_STEPS = {"val": "validation_step", "test": "test_step"}
_ENDS = {"val": "on_validation_epoch_end", "test": "on_test_epoch_end"}
_STAGES = {"val": RunningStage.VALIDATING, "test": RunningStage.TESTING}


class ExtraPass:
    """Runs a module's steps in a pass of its own; what they log leaves Lightning's values alone.

    Args:
        trainer: The Trainer, at any point of a fit, validation or test.
        stage: ``val`` or ``test``.
    """

    def __init__(self, trainer: L.Trainer, stage: str) -> None:
        self._trainer = trainer
        self._stage = stage
        self._results = _ResultCollection(training=False)

    def step(self, batch: Any, batch_idx: int, takes_batch_idx: bool = True) -> Any:
        """Run the step of a batch, as it comes from a loader; return its result."""
        trainer = self._trainer
        with self._logging(_STEPS[self._stage]), torch.no_grad():
            batch = self._results.batch = prepare_batch(trainer, batch)
            arguments = (batch, batch_idx) if takes_batch_idx else (batch,)
            step = getattr(trainer.strategy, _STEPS[self._stage])
            result = step(*arguments)
        self._results.batch = None
        return result

    def finish(self) -> dict[str, float]:
        """Return the numbers that the module has logged in the pass."""
        with self._logging(_ENDS[self._stage]), torch.no_grad():
            getattr(self._trainer.lightning_module, _ENDS[self._stage])()
        return {name: value.item() for name, value in epoch_means(self._results).items()}

    @contextlib.contextmanager
    def _logging(self, event: str) -> Iterator[None]:
        """Have the module log into the results of this pass, as if in one of Lightning's events."""
        trainer, loop = self._trainer, evaluation_loop(self._trainer)
        module, connector = trainer.lightning_module, trainer._logger_connector
        before = trainer.state.stage, module._current_fx_name
        results, first = loop._results, connector._first_loop_iter
        trainer.state.stage, module._current_fx_name = _STAGES[self._stage], event
        loop._results, connector._first_loop_iter = self._results, None
        try:
            yield
        finally:
            trainer.state.stage, module._current_fx_name = before
            loop._results, connector._first_loop_iter = results, first
