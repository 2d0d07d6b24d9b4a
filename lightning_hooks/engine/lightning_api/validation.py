"""Run, redirect and read Lightning's validation loops."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.trainer.states import RunningStage, TrainerFn

from lightning_hooks.engine.lightning_api.data import (
    copy_for_another_iterator,
    generators_of,
    prepare_batch,
)
from lightning_hooks.engine.lightning_api.logged_values import epoch_means, logged_by
from lightning_hooks.engine.lightning_api.method_patch import FitChanges, setting
from lightning_hooks.engine.lightning_api.private_names import (
    RESULTS,
    combined_loader,
    data_fetcher,
    keep_loaders,
    needs,
    private_import,
    set_loader,
)
from lightning_hooks.utils.random_state import isolated, noted

__all__ = [
    "ExtraPass",
    "SecondValidation",
    "batches_begun",
    "evaluate_as_before",
    "evaluation_loop",
    "load_val_data",
    "replace_val_loader",
    "train_as_before_validation",
    "val_metrics",
]

_ResultCollection = private_import(RESULTS, "_ResultCollection")
_STEPS = {"val": "validation_step", "test": "test_step"}
_ENDS = {"val": "on_validation_epoch_end", "test": "on_test_epoch_end"}
_STAGES = {"val": RunningStage.VALIDATING, "test": RunningStage.TESTING}

evaluates = needs("validations and tests run by hooks")
validates_again = needs("a second validation")
switches_mode = needs("after_train_epoch in train mode")


def batches_begun(trainer: L.Trainer) -> int:
    """Return the number of batches begun in the running validation, over all loaders."""
    return int(trainer.fit_loop.epoch_loop.val_loop.batch_progress.current.ready)


@evaluates
def replace_val_loader(trainer: L.Trainer, loader: Any, until: contextlib.ExitStack) -> None:
    """Validate on ``loader`` in the starting pass, and on the Trainer's loaders after ``until``."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    until.enter_context(setting(loop, _max_batches=loop._max_batches))
    until.enter_context(keep_loaders(loop))
    set_loader(loop, loader)
    loop.setup_data()
    loop.reset()


def evaluation_loop(trainer: L.Trainer) -> Any:
    """Return Lightning's loop of the validation, or test, of the Trainer's present work."""
    if trainer.state.fn == TrainerFn.VALIDATING:
        return trainer.validate_loop
    if trainer.state.fn == TrainerFn.TESTING:
        return trainer.test_loop
    return trainer.fit_loop.epoch_loop.val_loop


def load_val_data(trainer: L.Trainer) -> None:
    """Load the validation data of a fit now; Lightning does so in the first epoch with validation.

    Called on all ranks.
    """
    if trainer.enable_validation and trainer.val_dataloaders is None:
        trainer.fit_loop.epoch_loop.val_loop.setup_data()


def _flags_before(trainer: L.Trainer) -> Any:
    """Return Lightning's note of the train flags from before the running validation."""
    return trainer.fit_loop.epoch_loop.val_loop._module_mode


@switches_mode
def train_as_before_validation(trainer: L.Trainer) -> None:
    """Give the module the train flags from before the running validation."""
    _flags_before(trainer).restore(trainer.lightning_module)


@switches_mode
def evaluate_as_before(trainer: L.Trainer) -> None:
    """Keep the current flags for the training after the validation, and switch to evaluation."""
    module = trainer.lightning_module
    _flags_before(trainer).capture(module)
    module.on_validation_model_eval()


def val_metrics(trainer: L.Trainer) -> dict[str, torch.Tensor]:
    """Return the module's logged values of the ending validation or test."""
    return epoch_means(logged_by(evaluation_loop(trainer)))


class SecondValidation:
    """Repeats each validation of a fit; of the second, Lightning keeps the values alone.

    The second validation is Lightning's own loop, with the module's events. It has the random
    state, and so the data, of the first, and training goes on with the random state after the
    first. No callback is called but ``watch``, and counters stay as they were.

    Args:
        trainer: The Trainer, in the ``setup`` of a fit.
        fit: The fit.
        prefix: What the names of the second validation's values begin with.
        watch: A callback that is called in the second validation.
        begin: Called before the first validation.
        finish: Called with the second validation's values for callbacks, after it.
    """

    def __init__(
        self,
        trainer: L.Trainer,
        fit: FitChanges,
        prefix: str,
        watch: Callback,
        begin: Callable[[], None],
        finish: Callable[[dict[str, torch.Tensor]], None],
    ) -> None:
        self._trainer, self._loop = trainer, trainer.fit_loop.epoch_loop.val_loop
        self._prefix, self._watch = prefix, watch
        self._begin, self._finish = begin, finish
        self._patch(fit)

    @validates_again
    def _patch(self, fit: FitChanges) -> None:
        fit.patch(self._loop, "run", before=self._note_state, after=self._repeat)

    def _generators(self) -> list[torch.Generator]:
        loaders: Any = combined_loader(self._loop)
        return [each for loader in loaders.flattened for each in generators_of(loader)]

    def _note_state(self) -> None:
        """Note the random state, and the counts of steps, before the first validation."""
        loop: Any = self._loop
        if self._trainer.sanity_checking:
            return
        loop.setup_data()  # as the validation itself does first
        if not loop.skip:
            self._begin()
            self._restore_random_state = noted(*self._generators())
            self._steps = copy.copy(loop._seen_batches_per_dataloader)

    def _repeat(self, results: Any) -> None:
        trainer, loop = self._trainer, self._loop
        if trainer.sanity_checking or loop.skip:
            return
        connector: Any = trainer._logger_connector
        shown = {**connector._callback_metrics}
        with contextlib.ExitStack() as stack:
            stack.enter_context(isolated(*self._generators()))
            self._restore_random_state()
            stack.enter_context(
                setting(
                    loop,
                    _combined_loader=_with_other_workers(combined_loader(loop)),
                    _data_fetcher=None,
                    _results=_ResultCollection(training=False),
                    _seen_batches_per_dataloader=self._steps,
                    batch_progress=copy.deepcopy(loop.batch_progress),
                )
            )
            stack.callback(self._end_fetcher)
            names = ("_callback_metrics", "_logged_metrics", "_progress_bar_metrics")
            stack.enter_context(setting(connector, **{n: {**getattr(connector, n)} for n in names}))
            loggers = [_UnderPrefix(logger, self._prefix) for logger in trainer.loggers]
            stack.enter_context(setting(trainer, callbacks=[self._watch], loggers=loggers))
            type(loop).run(loop)
            again = connector._callback_metrics
        values = {name: value for name, value in again.items() if shown.get(name) is not value}
        self._finish({f"{self._prefix}{name}": value for name, value in values.items()})

    def _end_fetcher(self) -> None:
        if (fetcher := data_fetcher(self._loop)) is not None:
            fetcher.teardown()


def _with_other_workers(loaders: Any) -> Any:
    """Return a copy of a loop's loaders whose persistent workers are others."""
    loaders = copy.copy(loaders)
    loaders.flattened = [*map(copy_for_another_iterator, loaders.flattened)]
    return loaders


class _UnderPrefix(DummyLogger):
    """Passes metrics to a logger under names with a prefix, and nothing else."""

    def __init__(self, logger: Any, prefix: str) -> None:
        super().__init__()
        self._logger, self._prefix = logger, prefix

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        own = ("epoch", "step")  # of the axis
        named = {k if k in own else f"{self._prefix}{k}": v for k, v in metrics.items()}
        self._logger.log_metrics(named, step=step)

    def save(self) -> None:
        self._logger.save()


class ExtraPass:
    """Runs a module's steps in a separate pass; logging does not change Lightning's values.

    Args:
        trainer: The Trainer, at any point of a fit, validation or test.
        stage: ``val`` or ``test``.
    """

    def __init__(self, trainer: L.Trainer, stage: str) -> None:
        self._trainer = trainer
        self._stage = stage
        self._results = _ResultCollection(training=False)

    def loaders(self) -> int:
        """Return the number of loaders iterated in sequence."""
        loop = evaluation_loop(self._trainer)
        if combined_loader(loop) is None:
            loop.setup_data()
        return loop.num_dataloaders if loop._is_sequential else 1

    def batches(self) -> Iterator[tuple[Any, int, int | None]]:
        """Yield ``(batch, batch_idx, dataloader_idx)`` of a pass; the last is None for one loader.

        The pass is as long as Lightning's own pass, which may be running.
        """
        several, loop = self.loaders() > 1, evaluation_loop(self._trainer)
        loaders: Any = copy.copy(combined_loader(loop))  # with an iterator of its own
        loaders.limits = loop.max_batches
        batches = iter(loaders)
        for batch, batch_idx, dataloader_idx in itertools.islice(batches, sized_len(loaders)):
            yield batch, batch_idx, dataloader_idx if several else None

    def step(
        self,
        batch: Any,
        batch_idx: int,
        takes_batch_idx: bool = True,
        dataloader_idx: int | None = None,
    ) -> Any:
        """Run the step of a batch from a loader; return the result."""
        trainer, results = self._trainer, self._results
        with self._logging(_STEPS[self._stage]), torch.no_grad():
            batch = results.batch = prepare_batch(trainer, batch, dataloader_idx or 0)
            results.dataloader_idx = dataloader_idx
            arguments = [batch, batch_idx] if takes_batch_idx else [batch]
            if dataloader_idx is not None:
                arguments.append(dataloader_idx)
            result = getattr(trainer.strategy, _STEPS[self._stage])(*arguments)
        results.batch = results.dataloader_idx = None
        return result

    def finish(self) -> dict[str, float]:
        """Return the numbers logged by the module in the pass."""
        with self._logging(_ENDS[self._stage]), torch.no_grad():
            getattr(self._trainer.lightning_module, _ENDS[self._stage])()
        return {name: value.item() for name, value in epoch_means(self._results).items()}

    @contextlib.contextmanager
    def _logging(self, event: str) -> Iterator[None]:
        """Have the module log into the results of the pass, as in an event of Lightning."""
        trainer, loop = self._trainer, evaluation_loop(self._trainer)
        module, connector = trainer.lightning_module, trainer._logger_connector
        with (
            setting(trainer.state, stage=_STAGES[self._stage]),
            setting(module, _current_fx_name=event),
            setting(loop, _results=self._results),
            setting(connector, _first_loop_iter=None),
        ):
            yield
