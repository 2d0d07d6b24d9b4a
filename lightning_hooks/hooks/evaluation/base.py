"""Evaluate at intervals, also before training, and restore the state of the training."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.events import skip_events
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.side_effects import isolated_model_calls
from lightning_hooks.hooks.evaluation.intervals import interval_at, is_due
from lightning_hooks.hooks.evaluation.save_best import BestCheckpoints

__all__ = ["TimedEvaluation"]


class TimedEvaluation(BestCheckpoints):
    """Call ``_do_evaluate(runner)`` at intervals.

    A subclass sets ``dataloader`` (None for the Trainer's own validation), ``start``,
    ``interval``, ``by_epoch`` and, with ``use_dynamic_intervals``, ``dynamic_milestones`` and
    ``dynamic_intervals``.
    """

    reads_step = False
    dataloader: Any
    start: int | None = None
    interval: int = 1
    use_dynamic_intervals = False
    dynamic_milestones: list[int]
    dynamic_intervals: list[int]
    initial_flag = True
    _at_start = False
    _seen = _compared = 0
    """Validations of the Trainer's in this run, and those of them whose scores were compared."""

    def _do_evaluate(self, runner: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _do_evaluate(runner)")

    def before_run(self, runner: Any) -> None:
        """Count from the beginning."""
        super().before_run(runner)
        self.initial_flag = True
        self._seen = self._compared = 0
        if (self.by_epoch and not self.background) or self.save_best is None:
            skip_events(self, TimedEvaluation, "on_train_batch_end")

    def before_train_epoch(self, runner: Any) -> None:
        """Evaluate before training, if epochs are counted and ``start`` is reached."""
        self._decide_interval(runner)
        if self.by_epoch and self.initial_flag:
            self._evaluate_at_start(runner, runner.epoch, self.after_train_epoch)

    def before_train_iter(self, runner: Any) -> None:
        """Evaluate before training, if iterations are counted and ``start`` is reached."""
        if self.by_epoch:
            return
        self._decide_interval(runner)
        if self.initial_flag:
            self._evaluate_at_start(runner, runner.iter, self.after_train_iter)

    def after_train_epoch(self, runner: Any) -> None:
        """Evaluate, if epochs are counted and one is due."""
        if self.by_epoch and self.dataloader is not None and self._should_evaluate(runner):
            self._evaluate(runner)

    def after_train_iter(self, runner: Any) -> None:
        """Evaluate, if iterations are counted and one is due; log the training's values first."""
        if self.by_epoch or self.dataloader is None or not self._should_evaluate(runner):
            return
        if not self._at_start:
            loggers = _loggers(runner)
            for hook in loggers:
                hook.after_train_iter(runner)
            if runner.fills_log_buffer or any(_averages_as_mmcv(hook) for hook in loggers):
                runner.log_buffer.clear()  # else they would log the training's values twice
        self._evaluate(runner)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the scores of the Trainer's own validation, if there is no loader."""
        fitting = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        if fitting and self.dataloader is None:
            runner = Driver.of(trainer).runner
            self._seen += 1
            if self._should_evaluate(runner):
                self._compared += 1
                self._evaluate(runner)
            elif self._seen == 1:
                self._look_for_keys(runner)
        super().on_validation_end(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if ``interval`` fits none of the Trainer's validations; wait for the thread."""
        missed = self._seen and not self._compared and self.save_best is not None
        if missed and trainer.is_global_zero:
            unit = "epochs" if self.by_epoch else "iterations"
            start = "" if self.start is None else f"start={self.start}, "
            warnings.warn(
                f"{type(self).__name__}({start}interval={self.interval}) compared none of the "
                f"Trainer's {self._seen} validations: it counts {unit}; interval=1 compares all",
                stacklevel=2,
            )
        super().on_train_end(trainer, pl_module)

    def _look_for_keys(self, runner: Any) -> None:
        """Warn at the first validation of keys that are not logged, if none is compared yet."""

    def _decide_interval(self, runner: Any) -> None:
        """Set the interval in force, if intervals are dynamic."""
        if self.use_dynamic_intervals:
            self.interval = interval_at(
                self._counter(runner) + 1, self.dynamic_milestones, self.dynamic_intervals
            )

    def _should_evaluate(self, runner: Any) -> bool:
        """Return whether to evaluate after this epoch or iteration."""
        done = self._counter(runner) + 1
        if self.dataloader is None:  # a validation belongs to its epoch, also one within it
            done = runner.trainer.current_epoch + 1 if self.by_epoch else runner.iter
        return is_due(done, self.start, self.interval)

    def _counter(self, runner: Any) -> int:
        return int(runner.epoch if self.by_epoch else runner.iter)

    def _is_within_epoch(self, runner: Any) -> bool:
        """Whether the Trainer validates within an epoch, or the run has none."""
        ended = runner.counts_epochs and runner.epoch > runner.trainer.current_epoch
        return self.dataloader is None and self.by_epoch and not ended

    def _evaluated_at(self, runner: Any) -> tuple[int, str]:
        if self._is_within_epoch(runner):  # an epoch's number is that of its end
            return runner.iter, "iter"
        counted = self.dataloader is None or self._at_start
        return self._counter(runner) + (not counted), "epoch" if self.by_epoch else "iter"

    def _evaluate_at_start(self, runner: Any, done: int, evaluate: Callable[[Any], None]) -> None:
        self.initial_flag = False
        if self.start is None or done < self.start:
            return
        self._at_start = True
        try:
            evaluate(runner)
        finally:
            self._at_start = False
        self._report_start(runner)

    def _report_start(self, runner: Any) -> None:
        """Log the scores of an evaluation before training, and write the checkpoint that is due."""
        if runner.log_buffer.ready and not self.by_epoch:
            for hook in _loggers(runner):  # now: the first iteration's values are another line
                hook.after_train_epoch(runner)
        elif runner.log_buffer.ready:
            scores = ", ".join(f"{k}: {v}" for k, v in runner.log_buffer.output.items())
            runner.logger.info("Evaluated before training: %s", scores)
            runner.log_buffer.clear_output()
        if self._due is not None:  # now: the first step changes the weights
            self._write(runner.trainer)

    def _evaluate(self, runner: Any) -> None:
        with _state_restored(runner):
            self._do_evaluate(runner)
        self._take_rank_0s_decision(runner)


def _loggers(runner: Any) -> list[Any]:
    return [hook for hook in runner.hooks if is_family(hook, "LoggerHook")]


def _averages_as_mmcv(logger: Any) -> bool:
    """Whether a logger averages the last values of the buffer, rather than those of a window."""
    return not logger.after_train_iter.__module__.startswith("lightning_hooks.")


@contextlib.contextmanager
def _state_restored(runner: Any) -> Iterator[None]:
    """Restore train flags and random state after the block; keep the module from logging in it."""
    parts = [*runner.module.modules(), *runner.model.modules()]
    flags = [(part, part.training) for part in parts]
    try:
        with isolated_model_calls(runner):
            yield
    finally:
        for part, flag in flags:
            part.training = flag
        runner.flags_before_eval = None
