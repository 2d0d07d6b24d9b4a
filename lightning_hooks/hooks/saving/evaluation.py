"""Evaluate a model at intervals, and keep the best checkpoints: ``EvalHook`` and two relatives."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar

import lightning as L
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import distributed
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader
from torchmetrics import Metric, MetricCollection

from lightning_hooks.engine.driver.driver import Driver, is_lightnings_default
from lightning_hooks.engine.hook_callback import callbacks_of
from lightning_hooks.engine.lightning_api import model_state, validation
from lightning_hooks.engine.lightning_api.logged_values import publish
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.model_wrapper import isolated_model_calls
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.inference import (
    measure,
    multi_gpu_test,
    plain_values,
    predictions,
    single_gpu_test,
)
from lightning_hooks.hooks.saving.lightning import Due, SavingHook
from lightning_hooks.hooks.saving.ranking import (
    GREATER,
    LESS,
    LESS_ENDINGS,
    BestFields,
    Ranking,
    best_name,
    infer_rule,
    key_list,
    names,
    number,
)
from lightning_hooks.hooks.saving.store import (
    CheckpointStore,
    checked_out_dir,
    refuse_other_storage,
)
from lightning_hooks.storage import files
from lightning_hooks.storage.find_checkpoints import best_series
from lightning_hooks.utils.arguments import check_bool, check_function, check_int, check_path
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.suggestions import UnknownNameError, suggest
from lightning_hooks.utils.warn import rank_zero_warn, warn

__all__ = ["BestCheckpointHook", "DistEvalHook", "EvalHook"]


class EvalHook(SavingHook):
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

    rule_map: ClassVar[dict[str, Callable[[Any, Any], bool]]] = {
        "greater": operator.gt,
        "less": operator.lt,
    }
    init_value_map: ClassVar[dict[str, float]] = {"greater": -math.inf, "less": math.inf}
    _default_greater_keys: ClassVar[list[str]] = GREATER
    _default_less_keys: ClassVar[list[str]] = LESS
    less_endings: tuple[str, ...] = LESS_ENDINGS
    """Endings of names with better scores when less; none in mmcv."""

    kept_kind = "best"
    rule: str | None = None
    key_indicator: str = ""
    compare_func: Callable[[Any, Any], bool]
    best_ckpt_path: str | None = None
    latest_results: Any = None
    metric: Metric | MetricCollection | None = None
    initial_flag = True
    use_dynamic_intervals = False
    dynamic_milestones: list[int]
    dynamic_intervals: list[int]
    reads_step = False
    _over_ranks = False  # whether a metric is computed over the batches of all ranks
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
        self.store = CheckpointStore(check_path("out_dir", out_dir), background, on_saved)
        self.test_fn = test_fn or single_gpu_test
        if isinstance(eval_kwargs.get("metric"), (Metric, MetricCollection)):
            self.metric = eval_kwargs.pop("metric")
        self.eval_kwargs = eval_kwargs
        self.file_client_args = file_client_args
        if dynamic_intervals is not None:
            self.use_dynamic_intervals = True
            found = milestones_of(interval, dynamic_intervals)
            self.dynamic_milestones, self.dynamic_intervals = found

    def _init_comparison(
        self, save_best: Any, rule: Any, greater_keys: Any, less_keys: Any, keep_best: Any
    ) -> None:
        """Check and set the arguments of the comparison."""
        keys = key_list(save_best)
        check_int("keep_best", keep_best, 1)
        self.greater_keys = names("greater_keys", greater_keys, self._default_greater_keys)
        self.less_keys = names("less_keys", less_keys, self._default_less_keys)
        self.save_best = list(save_best) if isinstance(save_best, tuple) else save_best
        self.ranking = Ranking(keep_best)
        many = isinstance(rule, (list, tuple))
        if many and len(rule) != len(keys):
            raise ValueError(f"rule must have one for each key of save_best, got {rule!r}")
        rules = rule if many else [rule] * len(keys)
        for key, rule_of_key in reversed(list(zip(keys, rules, strict=True))):
            self._init_rule(rule_of_key, key)  # the first key comes last and sets mmcv's attributes
            self._add_rule()

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Set ``rule``, ``key_indicator`` and ``compare_func``.

        Raises:
            UnknownNameError: (a KeyError, as in mmcv) for an unknown rule.
            ValueError: if no rule is given or inferred from the key.
        """
        if not (rule is None or isinstance(rule, str)):
            raise TypeError(f"rule must be a str, a list of str or None, got {rule!r}")
        if rule is not None and rule not in self.rule_map:
            write = {"min": " Write less.", "max": " Write greater."}.get(rule, "")
            raise UnknownNameError(f"rule must be greater, less or None, but got {rule}.{write}")
        if rule is None and key_indicator != "auto":
            rule = infer_rule(key_indicator, self.greater_keys, self.less_keys, self.less_endings)
        self.rule, self.key_indicator = rule, key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def _add_rule(self) -> None:
        """Put mmcv's attributes before the other keys of the ranking."""
        if self.rule is not None and self.key_indicator != "auto":
            first = {self.key_indicator: (self.compare_func, self.init_value_map[self.rule])}
            self.ranking.rules = {**first, **self.ranking.rules}

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files: with ``save_best``."""
        return self.save_best is not None

    def unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the end of a batch, where no file may be due."""
        is_due = self.save_best is not None and (self.background or not self.by_epoch)
        return () if is_due else ("on_train_batch_end",)

    def before_run(self, runner: Runner) -> None:
        """Reset the counts; raise or warn now if an evaluation could not work later."""
        super().before_run(runner)
        if self.save_best is not None:
            self._prepare_best(runner)
        self.initial_flag = True
        self._seen = self._compared = 0
        reason = _why_no_validation(runner.trainer) if self.dataloader is None else ""
        if self.save_best and reason:
            message = f"save_best={self.save_best!r} has nothing to compare: the Trainer {reason}"
            warn(message)
        if self._has_own_evaluation():
            return
        dataset = getattr(self.dataloader, "dataset", None)
        if dataset is not None and self.metric is None and not hasattr(dataset, "evaluate"):
            raise TypeError(
                f"{type(dataset).__name__} has no evaluate(results, logger=None, ...); write it, "
                "or give EvalHook(metric=...) a torchmetrics Metric"
            )

    def _prepare_best(self, runner: Runner) -> None:
        """Take the best files so far from ``runner.meta``; check the directory of the files."""
        if runner.meta is None:
            warn("runner.meta is None. Creating an empty one.")
            runner.meta = {}
        messages = runner.meta.setdefault("hook_msgs", {})
        hooks = [hook for hook in runner.hooks if isinstance(hook, EvalHook) and hook.save_best]
        self.ranking.is_first = next(iter(hooks), self) is self
        self.ranking.current = None
        self.best_ckpt_path = messages.get(f"best_ckpt{self.ranking.suffix(self.key_indicator)}")
        self._require_distinct_keys(runner)
        self._warn_of_lightnings_best(callbacks_of(runner.trainer))
        self._open_directory(runner)
        for key in self.ranking.rules:  # a killed process may have left superseded files
            choose_old = self.ranking.choose_old(messages, key)
            self.store.clean_up(best_series(key), choose_old, runner.iter)

    def _open_directory(self, runner: Runner) -> None:
        """Check the directory of the files, and make an ``out_dir``."""
        self._open(runner, make=bool(self.out_dir))

    def _require_distinct_keys(self, runner: Runner) -> None:
        hooks = [hook for hook in runner.hooks if isinstance(hook, EvalHook) and hook is not self]
        for key in self.ranking.rules:
            if any(key in hook.ranking.rules for hook in hooks):
                raise ValueError(
                    f"two hooks save the best by {key!r}: they would take each other's scores and "
                    "files for their own; give one of them another key"
                )

    def _warn_of_lightnings_best(self, callbacks: list[Any]) -> None:
        """Warn if ``ckpt_path="best"`` is another file."""
        found = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint)]
        is_ours = any(isinstance(callback, SavingHook) for callback in found)
        if found and is_lightnings_default(found[0]) and not is_ours:
            warn(
                f"{type(self).__name__}(save_best={self.save_best!r}) runs beside Lightning's "
                'default ModelCheckpoint, whose newest file ckpt_path="best" is. Give the Trainer '
                'a CheckpointHook() too: then "best" is this hook\'s; or '
                "Trainer(enable_checkpointing=False), and ckpt_path=hook.best_ckpt_path",
            )

    def _has_own_evaluation(self) -> bool:
        """Return whether a subclass overrides the evaluation, with needs of its own."""
        methods = self.evaluate, self._do_evaluate
        return not all(m.__module__.startswith("lightning_hooks.") for m in methods)

    # -- when ------------------------------------------------------------------------------

    def before_train_epoch(self, runner: Runner) -> None:
        """Evaluate before training, if epochs are counted and ``start`` is reached."""
        self._decide_interval(runner)
        if self.by_epoch:
            self._evaluate_at_start(runner)

    def before_train_iter(self, runner: Runner) -> None:
        """Evaluate before training, if iterations are counted and ``start`` is reached."""
        if not self.by_epoch:
            self._decide_interval(runner)
            self._evaluate_at_start(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """Evaluate, if epochs are counted and an evaluation is due."""
        if self.by_epoch and self.dataloader is not None and self._should_evaluate(runner):
            self._evaluate(runner)

    def after_train_iter(self, runner: Runner) -> None:
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
            warn(
                f"{type(self).__name__}({start}interval={self.interval}) compared none of the "
                f"Trainer's {self._seen} validations: it counts {unit}; interval=1 compares all",
            )
        super().on_train_end(trainer, pl_module)

    def _decide_interval(self, runner: Runner) -> None:
        """Set the interval in force, if intervals are dynamic."""
        if self.use_dynamic_intervals:
            place = bisect.bisect(self.dynamic_milestones, self._counter(runner) + 1)
            self.interval = self.dynamic_intervals[place - 1]

    def _should_evaluate(self, runner: Runner) -> bool:
        """Return whether to evaluate after the present epoch or iteration."""
        done = self._counter(runner) + 1
        if self.dataloader is None:  # a validation within an epoch counts for the epoch
            done = runner.trainer.current_epoch + 1 if self.by_epoch else runner.iter
        return is_due(done, self.start, self.interval)

    def _counter(self, runner: Runner) -> int:
        return int(runner.epoch if self.by_epoch else runner.iter)

    def _is_within_epoch(self, runner: Runner) -> bool:
        """Return whether the Trainer validates within an epoch, or in a run without epochs."""
        ended = runner.counts_epochs and runner.epoch > runner.trainer.current_epoch
        return self.dataloader is None and self.by_epoch and not ended

    def _evaluated_at(self, runner: Runner) -> tuple[int, str]:
        if self._is_within_epoch(runner):  # the epoch's number belongs to the end of the epoch
            return runner.iter, "iter"
        counted = self.dataloader is None or self._at_start
        return self._counter(runner) + (not counted), "epoch" if self.by_epoch else "iter"

    def _evaluate_at_start(self, runner: Runner) -> None:
        is_first, self.initial_flag = self.initial_flag, False
        if not is_first or self.start is None or self._counter(runner) < self.start:
            return
        self._at_start = True
        try:
            (self.after_train_epoch if self.by_epoch else self.after_train_iter)(runner)
        finally:
            self._at_start = False
        self._report_start(runner)

    def _report_start(self, runner: Runner) -> None:
        """Log the scores of an evaluation before training, and write the due checkpoint."""
        if runner.log_buffer.ready and not self.by_epoch:
            for hook in _loggers(runner):  # now: the first iteration's values are another line
                hook.after_train_epoch(runner)
        elif runner.log_buffer.ready:
            scores = ", ".join(f"{k}: {v}" for k, v in runner.log_buffer.output.items())
            runner.logger.info("Evaluated before training: %s", scores)
            runner.log_buffer.clear_output()
        self.write_due(runner.trainer)  # now: the first step changes the weights

    # -- how -------------------------------------------------------------------------------

    def _evaluate(self, runner: Runner) -> None:
        with _state_restored(runner):
            self._do_evaluate(runner)
        self._take_rank_0s_decision(runner)

    def _do_evaluate(self, runner: Runner) -> None:
        """Run the model on the loader, evaluate the results, compare the scores."""
        self.latest_results = self._test(runner)
        self._report_results(runner)

    def _report_results(self, runner: Runner) -> None:
        count = sized_len(self.dataloader)  # None without a loader, or for an iterable data set
        if count is not None:
            runner.log_buffer.output["eval_iter_num"] = count
        key_score = self.evaluate(runner, self.latest_results)
        if self.save_best and self._is_score(runner, key_score):
            self._save_ckpt(runner, key_score)

    def _is_score(self, runner: Runner, key_score: Any) -> bool:
        """Return whether ``evaluate`` returned a score, not None."""
        return key_score is not None

    def _test(self, runner: Runner) -> Any:
        """Return the results of ``test_fn``, or the scores of a metric or of the Trainer."""
        if self.dataloader is None:
            return self._logged_scores(runner.trainer)
        if self.metric is None:
            return self._run_test(runner)
        is_own = self.test_fn not in (single_gpu_test, multi_gpu_test)
        pairs = self._run_test(runner) if is_own else predictions(runner.model, self.dataloader)
        return measure(self.metric, pairs, runner.module.device, over_ranks=self._over_ranks)

    def _run_test(self, runner: Runner) -> Any:
        return self.test_fn(runner.model, self.dataloader)

    def _logged_scores(self, trainer: L.Trainer) -> dict[str, Any]:
        """Return the Trainer's metrics, without metrics logged by earlier validations alone."""
        now = validation.val_metrics(trainer)
        self._logged_keys = self._logged_keys | now.keys()
        found = {**now, **trainer.callback_metrics}
        return {key: found[key] for key in found if key in now or key not in self._logged_keys}

    def evaluate(self, runner: Runner, results: Any) -> Any:
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
            warn(
                "Since `eval_res` is an empty dict, the behavior to save the best checkpoint will "
                "be skipped in this evaluation.",
            )
            return None
        if self.key_indicator == "auto":
            self._init_rule(self.rule, next(iter(scores)))
        self._report_missing(runner, scores)
        if isinstance(self.save_best, list):
            return {key: scores[key] for key in self.save_best if key in scores}
        return scores.get(self.key_indicator)

    def _values(self, runner: Runner, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores in the form of the log."""
        return plain_values(scores)

    # -- the best files --------------------------------------------------------------------

    def best_fields(self) -> BestFields:
        """Return the best files by the first key."""
        return self.ranking.fields(self._messages)

    def _save_ckpt(self, runner: Runner, key_score: Any) -> None:
        """Mark a checkpoint as due if a score, or any score of a dict, is among the best."""
        done, unit = self._evaluated_at(runner)
        scores = key_score if isinstance(key_score, Mapping) else {self.key_indicator: key_score}
        messages, ranking = self._messages, self.ranking
        for key, score in scores.items():
            if key not in ranking.rules:  # the first score resolves "auto"
                self._add_rule()
                self._require_distinct_keys(runner)
            name, found = best_name(key, unit, done), {**messages}
            path = files.join(self.store.path, name)
            if ranking.insert(found, key, score, path):
                self.store.thread.wait()  # what is told of the file before names that file
                messages.update(found)
                self._due = [*self._due, Due(name, f"{done} {unit}", key, number(score, key))]
                if key == self.key_indicator:
                    self.best_ckpt_path = ranking.entries(messages, key)[0][1]

    def _take_rank_0s_decision(self, runner: Runner) -> None:
        """Share rank 0's decision, so that all ranks write a checkpoint or none."""
        if self.save_best is None or runner.world_size == 1:
            return
        messages = self._messages
        own = {k: v for k, v in messages.items() if k.startswith("best_")}
        decision = self._due, own, self.best_ckpt_path, self.ranking.current
        found = runner.trainer.strategy.broadcast(decision)
        for key in own:
            del messages[key]
        self._due, of_rank_0, self.best_ckpt_path, self.ranking.current = found
        messages.update(of_rank_0)

    def _write(self, trainer: L.Trainer, due: Due) -> None:
        name, moment, key, score = due
        messages, ranking = self._messages, self.ranking
        choose_old, rule = ranking.choose_old(messages, key, name), ranking.rule(key)
        target = self.store.next_file(name, best_series(key), choose_old, score, rule)
        is_best = target.path == ranking.entries(messages, key)[0][1]
        what = "Best" if is_best else f"Among the best {ranking.keep},"
        line = f"{what} {printable(key)} is {score:0.4f} at {moment}: saved {name}"
        self.store.write(trainer, target, line)

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
                f"{suggest(missing[0], logged)}. The run stops at the end of an epoch that has not "
                "logged it either"
            )

    def _report_missing(self, runner: Runner, scores: Mapping[str, Any]) -> None:
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
            warn(f"{message}. Nothing is compared where it is not logged")


class DistEvalHook(EvalHook):
    """Evaluate on all ranks; rank 0 collects, evaluates and reports the results.

    The loader's sampler splits the samples among the ranks (``DistributedSampler`` without
    shuffling). With a single rank, the hook behaves as ``EvalHook``, which describes the other
    arguments.

    Args:
        test_fn: A function of the model and the loader, with keywords ``tmpdir`` and
            ``gpu_collect``; by default ``multi_gpu_test``.
        broadcast_bn_buffer: Whether to broadcast rank 0's BatchNorm statistics first.
        tmpdir: A directory shared by all ranks, to collect results through files;
            ``.eval_hook`` in the work directory by default.
        gpu_collect: Whether to send results from rank to rank instead.
        **kwargs: ``dynamic_intervals``, ``keep_best``, ``background``, ``on_saved`` and the
            arguments of ``evaluate``. A torchmetrics metric is computed over all ranks' batches;
            samples repeated by the sampler as padding count twice.

    Source: mmcv's ``DistEvalHook``.

    Note:
        Departures from mmcv: the departures of ``EvalHook`` and ``multi_gpu_test``; the hook works
        without a process group too.
    """

    _over_ranks = True

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
        broadcast_bn_buffer: bool = True,
        tmpdir: str | None = None,
        gpu_collect: bool = False,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *(dataloader, start, interval, by_epoch, save_best, rule, test_fn),
            *(greater_keys, less_keys, out_dir, file_client_args),
            **kwargs,
        )
        check_bool(broadcast_bn_buffer=broadcast_bn_buffer, gpu_collect=gpu_collect)
        if test_fn is None:
            self.test_fn = multi_gpu_test
        self.broadcast_bn_buffer = broadcast_bn_buffer
        self.tmpdir = check_path("tmpdir", tmpdir)
        self.gpu_collect = gpu_collect

    def _do_evaluate(self, runner: Runner) -> None:
        """Run the model on all ranks; evaluate on rank 0."""
        if self.broadcast_bn_buffer and runner.world_size > 1 and self.dataloader is not None:
            broadcast_bn_buffers(runner.model)
        self.latest_results = self._test(runner)
        if runner.rank == 0:
            self._report_results(runner)
        if runner.world_size > 1:  # for callbacks that decide by a score on every rank
            scores = runner.trainer.strategy.broadcast(plain_values(runner.log_buffer.output))
            scores.pop("eval_iter_num", None)
            publish(runner.trainer, scores)

    def _run_test(self, runner: Runner) -> Any:
        gpu_collect = self.gpu_collect or not runner.may_write
        tmpdir = self.tmpdir
        if tmpdir is None and files.is_local(runner.work_dir):
            tmpdir = files.join(runner.work_dir, ".eval_hook")
        test_fn: Callable[..., Any] = self.test_fn
        return test_fn(runner.model, self.dataloader, tmpdir=tmpdir, gpu_collect=gpu_collect)


@HOOKS.register_module()
class BestCheckpointHook(EvalHook, ModelCheckpoint):  # type: ignore[misc,override]  # every_n_epochs
    """Keep the checkpoints with the best values logged in the Trainer's validation.

    Each validation in an ``interval``-th epoch compares every key by its own rule. For a score
    among the ``keep_best`` best, a file is written, and then the worst kept file is deleted. The
    file is ``best_<key>_epoch_<n>.pth`` for a validation at the end of an epoch, or
    ``best_<key>_iter_<n>.pth`` for a validation within an epoch. The files are like
    ``CheckpointHook``'s and listed in the same manifest. The ranking is in ``runner.meta``, and so
    continues in a resumed run.

    To Lightning, the hook is a ``ModelCheckpoint`` with ``monitor``, ``best_model_score`` and the
    other attributes (:class:`~lightning_hooks.hooks.saving.lightning.BestFields`).
    After a fit of the Trainer, ``ckpt_path="best"`` is the best file; in a new process,
    ``HookAdapter(hooks, work_dir=...).best_checkpoint`` finds the file.

    A score must be better to rank before another score: on ties the older file stays first. NaN is
    never among the best, and neither is the worst possible score (minus infinity where greater is
    better, else infinity).

    ================================  ========================================================
    key in ``runner.meta``            value
    ================================  ========================================================
    hook_msgs["best_score"]           the best score by the first key of the first such hook
    hook_msgs["best_ckpt"]            the path of the best file, for ``ckpt_path="best"``
    hook_msgs["best_score_<key>"]     the best score by another key; ``best_ckpt_<key>``
    hook_msgs["best_ckpts"]           ``[score, path]`` by key, best first
    ================================  ========================================================

    Args:
        save_best: The name of a logged value, or a list of names; ``"auto"`` for the first.
        rule: ``"greater"`` or ``"less"``: which scores are better, a string or a list as
            ``save_best``; by default inferred from the key, see ``greater_keys``.
        greater_keys: Names, or parts of names, of scores where greater is better; by default acc,
            top, AR@, auc, precision, mAP, mDice, mIoU, mAcc, aAcc.
        less_keys: Names, or parts of names, of scores where less is better; by default loss, and
            all names ending in loss, error, mse, mae, rmse or perplexity.
        keep_best: The number of checkpoints to keep by each key, at least 1.
        interval: Epochs or iterations between comparisons, at least 1.
        by_epoch: Whether to count epochs, else iterations; by iteration, each validation counts.
        out_dir: The parent directory of the files; files are written to a subdirectory with the
            work directory's name. By default the work directory itself; fsspec paths are allowed.
        background: Whether a thread writes the files while training goes on, as
            ``CheckpointHook``'s.
        on_saved: Called with the path of each file on the disk, as ``CheckpointHook``'s.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for values out of range, and for a key without a rule.
        KeyError: for an unknown ``rule``; in a run, for a key that is not logged. A key that may
            still be logged, within an epoch, is warned of.

    Source: mmcv's ``EvalHook(save_best=...)``; mmengine's ``CheckpointHook`` for several keys.

    Note:
        Departures from mmcv: a hook of its own; several keys, and several files by each; more
        names are less, as in ``EvalHook``.
    """

    def __init__(
        self,
        save_best: str | list[str] = "auto",
        rule: str | list[str] | None = None,
        greater_keys: str | list[str] | None = None,
        less_keys: str | list[str] | None = None,
        keep_best: int = 1,
        interval: int = 1,
        by_epoch: bool = True,
        out_dir: str | None = None,
        background: bool = False,
        on_saved: Callable[[str], object] | None = None,
    ) -> None:
        if save_best is None:
            raise TypeError("save_best must be a str or a list of str, got None")
        super().__init__(
            *(None, None, interval, by_epoch, save_best, rule, None, greater_keys, less_keys),
            out_dir=checked_out_dir(out_dir),
            keep_best=keep_best,
            background=background,
            on_saved=on_saved,
        )

    @property
    def exported_checkpoint(self) -> str:
        """The path of the best file by the first key, as ``best_model_path``."""
        return self.best_fields().best_model_path


def _loggers(runner: Runner) -> list[Any]:
    return [hook for hook in runner.hooks if is_family(hook, "LoggerHook")]


def _averages_as_mmcv(logger: Any) -> bool:
    """Return whether a logger averages the buffer's last values instead of a window's."""
    return not logger.after_train_iter.__module__.startswith("lightning_hooks.")


@contextlib.contextmanager
def _state_restored(runner: Runner) -> Iterator[None]:
    """Restore train flags and random state after the block, and mute the module's logging."""
    try:
        flags = model_state.keep_train_flags(runner.module, runner.model)
        with isolated_model_calls(runner), flags:
            yield
    finally:
        runner.flags_before_eval = None


def broadcast_bn_buffers(model: torch.nn.Module) -> None:
    """Broadcast the BatchNorm statistics of rank 0 to all ranks."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            for buffer in (module.running_mean, module.running_var):
                if buffer is not None:
                    distributed.broadcast(buffer, 0)


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


def milestones_of(interval: int, dynamic_intervals: Any) -> tuple[list[int], list[int]]:
    """Return the milestones and intervals of mmdet's ``[(milestone, interval), ...]``.

    Raises:
        TypeError: for anything but a list of pairs of int.
        ValueError: for milestones that do not increase, or an interval below 1.

    >>> milestones_of(4, [(3, 2), (5, 1)])
    ([0, 3, 5], [4, 2, 1])
    """
    given = dynamic_intervals if isinstance(dynamic_intervals, (list, tuple)) else [None]
    pairs = [tuple(pair) if isinstance(pair, (list, tuple)) else () for pair in given]
    if any([type(number) for number in pair] != [int, int] for pair in pairs):
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


def _why_no_validation(trainer: L.Trainer) -> str:
    """Return why the Trainer does not validate in a fit, with a remedy; empty if it does."""
    if not trainer.enable_validation:
        return "does not validate in this fit; give it a validation loader"
    batches = trainer.num_val_batches
    if batches and not any(batches):
        return "has a validation loader without a batch; give it data"
    every, epochs = trainer.check_val_every_n_epoch, trainer.max_epochs
    if every is not None and epochs is not None and 0 < epochs < every:
        return (
            f"validates every {every} epochs, and the run has {epochs}; give it "
            f"check_val_every_n_epoch={epochs} at most"
        )
    return ""
