"""Evaluate a model at intervals, and keep the best checkpoints: ``EvalHook``."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader
from torchmetrics import Metric, MetricCollection

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import validation
from lightning_hooks.engine.lightning_api.events import skip_events
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.side_effects import isolated_model_calls
from lightning_hooks.hooks.checkpoint.paths import refuse_other_storage
from lightning_hooks.hooks.evaluation.inference import (
    measure,
    plain_values,
    predictions,
    single_gpu_test,
)
from lightning_hooks.hooks.evaluation.ranking import BestCheckpoints
from lightning_hooks.utils.arguments import check_bool, check_function, check_int, check_path
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["EvalHook", "interval_at", "is_due", "milestones_of"]


class EvalHook(BestCheckpoints):
    """Evaluate the model after training epochs or iterations, and keep the best checkpoints.

    At each epoch or iteration ``n`` with ``(n - start) % interval == 0``, the results are
    ``test_fn(model, loader)`` and the scores
    ``loader.dataset.evaluate(results, logger=..., **eval_kwargs)``. An evaluation restores the
    model's train flags and the random state, and the module logs nothing. A best checkpoint is a
    Lightning checkpoint, written like ``CheckpointHook``'s and to the same directory.

    Without a loader, ``EvalHook(save_best="val_acc")``, the scores are the values logged by the
    module in the Trainer's own validation. Each validation is compared. A validation within an
    epoch has the iteration in the file name: ``best_val_acc_iter_150.pth`` beside
    ``best_val_acc_epoch_2.pth``. ``interval`` and ``start`` count the epochs of the validations.

    ==================================  ======================================================
    key in ``log_buffer.output``        value
    ==================================  ======================================================
    the keys from ``evaluate``          the scores; loggers write a line of validation
    eval_iter_num                       batches in the loader
    ==================================  ======================================================

    Args:
        dataloader: The data to evaluate on. None for the Trainer's own validation: the logged
            metrics are the scores, no model is run and nothing is logged twice. ``"validation"``
            is the same without need of ``save_best``: a config's ``evaluation=dict(interval=2)``
            only sets how often the Trainer validates.
        start: The first epoch or iteration to evaluate, and the origin of ``interval``; 0 by
            default. A run starting at or after ``start`` is evaluated before training, if
            ``interval`` agrees.
        interval: Epochs or iterations between evaluations, at least 1.
        by_epoch: Whether to count epochs, else iterations.
        save_best: The key of the score to keep the best checkpoint by, or a list of keys;
            ``"auto"`` for the first key from ``evaluate``. Beside a ``CheckpointHook``,
            ``ckpt_path="best"`` is the best by the first key. Beside Lightning's default
            ``ModelCheckpoint``, ``"best"`` is the newest file of the latter, with a warning.
        rule: ``"greater"`` or ``"less"``: which scores are better, a string or a list as
            ``save_best``; by default inferred from the key, see ``greater_keys``.
        test_fn: A function of the model and the loader, by default ``single_gpu_test``.
        greater_keys: Names, or parts of names, of scores where greater is better; by default acc,
            top, AR@, auc, precision, mAP, mDice, mIoU, mAcc, aAcc.
        less_keys: Names, or parts of names, of scores where less is better; by default loss. Names
            ending in loss, error, mse, mae, rmse or perplexity are less too, unless your own
            ``greater_keys`` match.
        out_dir: The parent directory of best checkpoints; files are written to a subdirectory
            with the work directory's name. By default the work directory itself; fsspec paths are
            allowed.
        file_client_args: mmcv's choice of a storage; ``None`` or ``dict(backend="disk")``.
        dynamic_intervals: mmdet's ``[(milestone, interval), ...]``: a new interval from each
            milestone-th epoch or iteration on.
        keep_best: The number of checkpoints to keep by each key, at least 1.
        background: Whether a thread writes the checkpoints, as ``CheckpointHook``'s.
        on_saved: Called with the path of each checkpoint on the disk, as ``CheckpointHook``'s.
        **eval_kwargs: Arguments of ``evaluate``. A torchmetrics ``Metric`` or
            ``MetricCollection`` as ``metric`` replaces ``evaluate``: the metric is updated with
            prediction and target of every batch, or with the pairs from ``test_fn``.

    Raises:
        TypeError: for an argument of the wrong type, and with neither ``dataloader`` nor
            ``save_best``; in a run, for a data set without ``evaluate``.
        ValueError: for values out of range, and for a key without a rule.
        KeyError: for an unknown ``rule``; in a run, for a key missing among the scores. A key that
            may still be logged, within an epoch, is warned of.

    Source: mmcv's and mmdet's ``EvalHook``. Not in the registry, as in mmcv. By iteration, place
    the hook after ``IterTimerHook``, as in mmcv, so that the scores are a line of their own.

    Note:
        Departures from mmcv: names ending in loss, error, mse, mae, rmse or perplexity are less
        (mmcv refuses most, and takes ``top1_error`` for greater); a score of exactly 0 counts, NaN
        is never the best; the model keeps its mode, also in the evaluation before training;
        ``less_keys`` may be a string; best files are Lightning's, and the old file is deleted after
        the new file is on the disk; two hooks that save the best by the same key are refused; a
        slash in a key makes no directory; best files of a run begun by mmcv are not deleted; before
        training a file has the number of epochs or iterations done; the random state is kept; an
        evaluation before iteration 1 is a log line of its own, before epoch 1 a text.
    """

    latest_results: Any = None
    metric: Metric | MetricCollection | None = None
    initial_flag = True
    use_dynamic_intervals = False
    dynamic_milestones: list[int]
    dynamic_intervals: list[int]
    reads_step = False
    _at_start = False
    _seen = _compared = 0
    """The Trainer's validations in this run, and the validations with compared scores."""
    _warned_of: Sequence[str] = ()
    _logged_keys: Set[str] = frozenset()
    """Names of the values logged in validations."""

    def __init__(
        self,
        dataloader: DataLoader[Any] | None = None,
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        test_fn: Callable[..., Any] | None = None,
        greater_keys: str | list[str] | None = None,
        less_keys: str | list[str] | None = None,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        *,
        dynamic_intervals: list[tuple[int, int]] | None = None,
        keep_best: int = 1,
        background: bool = False,
        on_saved: Callable[[str], object] | None = None,
        **eval_kwargs: Any,
    ) -> None:
        uses_trainer_validation = isinstance(dataloader, str) and dataloader == "validation"
        dataloader = None if uses_trainer_validation else dataloader
        if not (dataloader is None or isinstance(dataloader, DataLoader)):
            raise TypeError(f"dataloader must be a pytorch DataLoader, but got {type(dataloader)}")
        check_int("interval", interval)
        if interval <= 0:
            raise ValueError(f"interval must be a positive number, but got {interval}")
        if start is not None:
            check_int("start", start)
            if start < 0:
                raise ValueError(f"The evaluation start epoch {start} is smaller than 0")
        check_bool(by_epoch=by_epoch)
        check_function("test_fn", test_fn)
        if dataloader is None and (test_fn or eval_kwargs):
            names = ", ".join([*(["test_fn"] if test_fn else []), *eval_kwargs])
            raise ValueError(f"{names} without a dataloader: there is nothing to run")
        is_idle = dataloader is None and save_best is None and not uses_trainer_validation
        if is_idle and not self._has_own_evaluation():
            name = type(self).__name__
            raise TypeError(
                f'{name} has nothing to do: write {name}(save_best="val_loss") to keep the best '
                "checkpoint by a value that the module logs in validation, or "
                f"{name}(loader, metric=torchmetrics.MeanSquaredError()) to evaluate on other data"
            )
        refuse_other_storage(file_client_args)
        self.dataloader = dataloader
        self.start = start
        self.interval = interval
        self.by_epoch = by_epoch
        self._init_comparison(save_best, rule, greater_keys, less_keys, keep_best)
        self._init_writing(background, on_saved)
        self.test_fn = test_fn or single_gpu_test
        if isinstance(eval_kwargs.get("metric"), (Metric, MetricCollection)):
            self.metric = eval_kwargs.pop("metric")
        self.eval_kwargs = eval_kwargs
        self.out_dir = check_path("out_dir", out_dir)
        self.file_client_args = file_client_args
        if dynamic_intervals is not None:
            self.use_dynamic_intervals = True
            found = milestones_of(interval, dynamic_intervals)
            self.dynamic_milestones, self.dynamic_intervals = found

    def before_run(self, runner: Any) -> None:
        """Reset the counts; raise or warn now if an evaluation could not work later."""
        super().before_run(runner)
        self.initial_flag = True
        self._seen = self._compared = 0
        if (self.by_epoch and not self.background) or self.save_best is None:
            skip_events(self, EvalHook, "on_train_batch_end")
        reason = validation.why_none(runner.trainer) if self.dataloader is None else ""
        if self.save_best and reason:
            message = f"save_best={self.save_best!r} has nothing to compare: the Trainer {reason}"
            warnings.warn(message, stacklevel=2)
        if self._has_own_evaluation():
            return
        dataset = getattr(self.dataloader, "dataset", None)
        if dataset is not None and self.metric is None and not hasattr(dataset, "evaluate"):
            raise TypeError(
                f"{type(dataset).__name__} has no evaluate(results, logger=None, ...); write it, "
                "or give EvalHook(metric=...) a torchmetrics Metric"
            )

    def _has_own_evaluation(self) -> bool:
        """Return whether a subclass overrides the evaluation, with needs of its own."""
        methods = self.evaluate, self._do_evaluate
        return not all(m.__module__.startswith("lightning_hooks.") for m in methods)

    # -- when ------------------------------------------------------------------------------

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
        """Evaluate, if epochs are counted and an evaluation is due."""
        if self.by_epoch and self.dataloader is not None and self._should_evaluate(runner):
            self._evaluate(runner)

    def after_train_iter(self, runner: Any) -> None:
        """Evaluate, if iterations are counted and due; log the training's values first."""
        if self.by_epoch or self.dataloader is None or not self._should_evaluate(runner):
            return
        if not self._at_start:
            loggers = _loggers(runner)
            for hook in loggers:
                hook.after_train_iter(runner)
            if runner.fills_log_buffer or any(_averages_as_mmcv(hook) for hook in loggers):
                runner.log_buffer.clear()  # else loggers would log the training's values twice
        self._evaluate(runner)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Without a loader, take the scores of the Trainer's own validation.

        In the sanity check, warn of a key that is not logged.
        """
        if trainer.sanity_checking:
            self._warn_of_unlogged(validation.val_metrics(trainer))
        elif trainer.state.fn == TrainerFn.FITTING and self.dataloader is None:
            runner = Driver.of(trainer).runner
            self._seen += 1
            if self._should_evaluate(runner):
                self._compared += 1
                self._evaluate(runner)
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

    def _decide_interval(self, runner: Any) -> None:
        """Set the interval in force, if intervals are dynamic."""
        if self.use_dynamic_intervals:
            self.interval = interval_at(
                self._counter(runner) + 1, self.dynamic_milestones, self.dynamic_intervals
            )

    def _should_evaluate(self, runner: Any) -> bool:
        """Return whether to evaluate after the present epoch or iteration."""
        done = self._counter(runner) + 1
        if self.dataloader is None:  # a validation within an epoch counts for the epoch
            done = runner.trainer.current_epoch + 1 if self.by_epoch else runner.iter
        return is_due(done, self.start, self.interval)

    def _counter(self, runner: Any) -> int:
        return int(runner.epoch if self.by_epoch else runner.iter)

    def _is_within_epoch(self, runner: Any) -> bool:
        """Return whether the Trainer validates within an epoch, or in a run without epochs."""
        ended = runner.counts_epochs and runner.epoch > runner.trainer.current_epoch
        return self.dataloader is None and self.by_epoch and not ended

    def _evaluated_at(self, runner: Any) -> tuple[int, str]:
        if self._is_within_epoch(runner):  # the epoch's number belongs to the end of the epoch
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
        """Log the scores of an evaluation before training, and write the due checkpoint."""
        if runner.log_buffer.ready and not self.by_epoch:
            for hook in _loggers(runner):  # now: the first iteration's values are another line
                hook.after_train_epoch(runner)
        elif runner.log_buffer.ready:
            scores = ", ".join(f"{k}: {v}" for k, v in runner.log_buffer.output.items())
            runner.logger.info("Evaluated before training: %s", scores)
            runner.log_buffer.clear_output()
        if self._due is not None:  # now: the first step changes the weights
            self._write(runner.trainer)

    # -- how -------------------------------------------------------------------------------

    def _evaluate(self, runner: Any) -> None:
        with _state_restored(runner):
            self._do_evaluate(runner)
        self._take_rank_0s_decision(runner)

    def _do_evaluate(self, runner: Any) -> None:
        """Run the model on the loader, evaluate the results, compare the scores."""
        self.latest_results = self._test(runner)
        self._report_results(runner)

    def _report_results(self, runner: Any) -> None:
        if self.dataloader is not None:
            with contextlib.suppress(TypeError):  # an iterable data set may have no length
                runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
        key_score = self.evaluate(runner, self.latest_results)
        if self.save_best and self._is_score(runner, key_score):
            self._save_ckpt(runner, key_score)

    def _is_score(self, runner: Any, key_score: Any) -> bool:
        """Return whether ``evaluate`` returned a score, not None."""
        return key_score is not None

    def _test(self, runner: Any) -> Any:
        """Return the results of ``test_fn``, or the scores of a metric or of the Trainer."""
        if self.dataloader is None:
            return self._logged_scores(runner.trainer)
        if self.metric is None:
            return self.test_fn(runner.model, self.dataloader)
        own = self.test_fn is not single_gpu_test
        pairs = (self.test_fn if own else predictions)(runner.model, self.dataloader)
        return measure(self.metric, pairs, runner.module.device, over_ranks=False)

    def _logged_scores(self, trainer: L.Trainer) -> dict[str, Any]:
        """Return the Trainer's metrics, without metrics logged by earlier validations alone."""
        now = validation.val_metrics(trainer)
        self._logged_keys = self._logged_keys | now.keys()
        found = {**now, **trainer.callback_metrics}
        return {key: found[key] for key in found if key in now or key not in self._logged_keys}

    def evaluate(self, runner: Any, results: Any) -> Any:
        """Log all scores; return the score named by ``save_best``, or a dict of several scores."""
        scores = results
        if self.dataloader is not None and self.metric is None:
            dataset: Any = self.dataloader.dataset
            scores = dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs)
        scores = self._values(runner, scores)
        if self.dataloader is not None:  # else the module has logged the scores
            runner.log_buffer.output.update(scores)
            runner.log_buffer.ready = True
        if self.save_best is None:
            return None
        if not scores:
            warnings.warn(
                "Since `eval_res` is an empty dict, the behavior to save the best checkpoint will "
                "be skipped in this evaluation.",
                stacklevel=2,
            )
            return None
        if self.key_indicator == "auto":
            self._init_rule(self.rule, next(iter(scores)))
        self._report_missing(runner, scores)
        if isinstance(self.save_best, list):
            return {key: scores[key] for key in self.save_best if key in scores}
        return scores.get(self.key_indicator)

    def _values(self, runner: Any, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores in the form of the log."""
        return plain_values(scores)

    # -- keys that are not logged ----------------------------------------------------------

    def _missing_keys(self, scores: Mapping[str, Any]) -> list[str]:
        """Return the keys of ``save_best`` missing among the scores."""
        keys = self.save_best if isinstance(self.save_best, list) else [self.key_indicator]
        return [key for key in keys if key not in {*scores, "auto"}]

    def _warn_of_unlogged(self, logged: Mapping[str, Any]) -> None:
        """Warn of keys not logged in the sanity check."""
        missing = self._missing_keys(logged)
        if self.save_best is not None and self.dataloader is None and logged and missing:
            rank_zero_warn(
                f"{type(self).__name__}: the sanity check has logged no save_best={missing[0]!r}; "
                f"{suggest(missing[0], logged)}. Where training_step does not log it either, the "
                "first validation stops the run"
            )

    def _report_missing(self, runner: Any, scores: Mapping[str, Any]) -> None:
        """Report keys missing among the scores.

        Within an epoch, where the key may still be logged later, rank 0 warns.

        Raises:
            UnknownNameError: (a KeyError) for a missing key at the end of an epoch.
        """
        missing = self._missing_keys(scores)
        may_come = self._is_within_epoch(runner)
        if not missing or (may_come and self._warned_of == missing):
            return
        self._warned_of = missing
        message = (
            f"{type(self).__name__}: save_best={missing[0]!r} is no score; "
            f"{suggest(missing[0], scores)}"
        )
        if not may_come:
            raise UnknownNameError(message)
        if runner.rank == 0:
            warnings.warn(f"{message}. Nothing is compared where it is not logged", stacklevel=2)


def _loggers(runner: Any) -> list[Any]:
    return [hook for hook in runner.hooks if is_family(hook, "LoggerHook")]


def _averages_as_mmcv(logger: Any) -> bool:
    """Return whether a logger averages the buffer's last values instead of a window's."""
    return not logger.after_train_iter.__module__.startswith("lightning_hooks.")


@contextlib.contextmanager
def _state_restored(runner: Any) -> Iterator[None]:
    """Restore train flags and random state after the block, and mute the module's logging."""
    parts = [*runner.module.modules(), *runner.model.modules()]
    flags = [(part, part.training) for part in parts]
    try:
        with isolated_model_calls(runner):
            yield
    finally:
        for part, flag in flags:
            part.training = flag
        runner.flags_before_eval = None


# -- intervals -------------------------------------------------------------------------------------


def is_due(done: int, start: int | None, interval: int) -> bool:
    """Return whether to evaluate after ``done`` epochs or iterations.

    ``done % interval == 0``; with a start, ``done >= start and (done - start) % interval == 0``.

    >>> [n for n in range(1, 9) if is_due(n, None, 3)], [n for n in range(1, 9) if is_due(n, 2, 3)]
    ([3, 6], [2, 5, 8])
    """
    if start is None:
        return done % interval == 0
    return done >= start and (done - start) % interval == 0


def interval_at(done: int, milestones: Sequence[int], intervals: Sequence[int]) -> int:
    """Return the interval in force at the ``done``-th epoch or iteration.

    >>> [interval_at(n, [0, 3, 5], [4, 2, 1]) for n in range(1, 7)]
    [4, 4, 2, 2, 1, 1]
    """
    return intervals[bisect.bisect(milestones, done) - 1]


def milestones_of(interval: int, dynamic_intervals: Any) -> tuple[list[int], list[int]]:
    """Return the milestones and intervals of mmdet's ``[(milestone, interval), ...]``.

    Raises:
        TypeError: for anything but a list of pairs of int.
        ValueError: for milestones that do not increase, or an interval below 1.

    >>> milestones_of(4, [(3, 2), (5, 1)])
    ([0, 3, 5], [4, 2, 1])
    """
    try:
        pairs = [(milestone, every) for milestone, every in dynamic_intervals]
        whole = all(type(x) is int for pair in pairs for x in pair)
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise TypeError(
            "dynamic_intervals must be a list of (milestone, interval), as in [(270, 10), (290, "
            f"1)], got {dynamic_intervals!r}"
        )
    milestones, intervals = [0, *(m for m, _ in pairs)], [interval, *(i for _, i in pairs)]
    if any(a >= b for a, b in itertools.pairwise(milestones)) or min(intervals) < 1:
        raise ValueError(
            "dynamic_intervals must have increasing milestones above 0 and intervals of at least "
            f"1, got {dynamic_intervals!r}"
        )
    return milestones, intervals
