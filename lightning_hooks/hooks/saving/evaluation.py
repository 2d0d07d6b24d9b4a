"""Evaluate a model on a loader at intervals, keep the best checkpoints: ``EvalHook``."""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

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
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import model_state, progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.priority import loggers_of
from lightning_hooks.engine.runner.model_wrapper import isolated_model_calls
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.best import BestFiles, Moment, validated_at
from lightning_hooks.hooks.saving.directory import refuse_other_storage
from lightning_hooks.hooks.saving.due import SavingHook
from lightning_hooks.hooks.saving.inference import (
    measure,
    multi_gpu_test,
    plain_values,
    predictions,
    single_gpu_test,
)
from lightning_hooks.hooks.saving.ranking import (
    GREATER,
    LESS,
    LESS_ENDINGS,
    Rule,
    checked_rule,
    is_due,
    key_list,
    names,
)
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.storage import files
from lightning_hooks.utils import ranks
from lightning_hooks.utils.arguments import check_bool, check_function, check_int, check_path, shown
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.warn import rank_zero_warn, warn

__all__ = ["DistEvalHook", "EvalHook", "intervals_of"]


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

    rule: str | None = None
    key_indicator: str = ""
    compare_func: Callable[[Any, Any], bool]
    save_best: str | list[str] | None = None
    best_ckpt_path: str | None = None
    latest_results: Any = None
    initial_flag = True
    _less_endings: tuple[str, ...] = LESS_ENDINGS
    """Endings of names with better scores when less; none in mmcv."""
    _metric: Metric | MetricCollection | None = None
    _dynamic: tuple[list[int], list[int]] | None = None
    """The milestones and intervals of ``dynamic_intervals``."""
    _over_ranks = False  # whether a metric is computed over the batches of all ranks
    _at_start = False

    def __init__(
        self,
        dataloader: DataLoader[Any] | Literal["validation"] | None = None,
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
            raise ValueError(f"interval must be a positive number, but got {shown(interval)}")
        if start is not None:
            check_int("start", start)
            if start < 0:
                raise ValueError(f"The evaluation start epoch {start} is smaller than 0")
        check_bool(by_epoch=by_epoch)
        check_function("test_fn", test_fn)
        if dataloader is None and (test_fn or eval_kwargs):
            unused = ", ".join([*(["test_fn"] if test_fn else []), *eval_kwargs])
            raise ValueError(f"{unused} without a dataloader: there is nothing to run")
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
        self.out_dir = check_path("out_dir", out_dir)
        self.greater_keys = names("greater_keys", greater_keys, self._default_greater_keys)
        self.less_keys = names("less_keys", less_keys, self._default_less_keys)
        self.save_best = list(save_best) if isinstance(save_best, tuple) else save_best
        self._best = BestFiles(
            CheckpointStore(background, on_saved),
            *(type(self).__name__, save_best, rule, keep_best),
            choose_rule=self._rule_of,
        )
        self.test_fn = test_fn or single_gpu_test
        if isinstance(eval_kwargs.get("metric"), (Metric, MetricCollection)):
            self._metric = eval_kwargs.pop("metric")
        self.eval_kwargs = eval_kwargs
        self.file_client_args = file_client_args
        if dynamic_intervals is not None:
            self._dynamic = milestones_of(interval, dynamic_intervals)

    @functools.cached_property
    def _best(self) -> BestFiles:
        """The best files; for old subclasses that do not call this class's constructor."""
        return BestFiles(CheckpointStore(), type(self).__name__, choose_rule=self._rule_of)

    @functools.cached_property
    def _files(self) -> Sequence[BestFiles]:  # type: ignore[override]
        return [self._best]

    def _rule_of(self, rule: str | None, key: str) -> Rule | None:
        """Return the rule of a key by mmcv's attributes, which subclasses may set."""
        if self.rule is None or key != self.key_indicator:
            self._init_rule(rule, key)
        if self.rule is None or key == "auto":
            return None
        return self.compare_func, self.init_value_map[self.rule]

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Set ``rule``, ``key_indicator`` and ``compare_func``.

        Raises:
            UnknownNameError: (a KeyError, as in mmcv) for an unknown rule.
            ValueError: if no rule is given or inferred from the key.
        """
        keys = self.greater_keys, self.less_keys, self._less_endings
        self.rule, self.key_indicator = checked_rule(rule, key_indicator, *keys), key_indicator
        if self.rule is not None:
            self.compare_func = self.rule_map[self.rule]

    def before_run(self, runner: Runner) -> None:
        """Reset the counts; raise or warn now if an evaluation could not work later."""
        self._best.keys = key_list(self.save_best)
        super().before_run(runner)
        if self._best.is_used:
            self._note_best_path()
            self._warn_of_lightnings_best(callbacks_of(runner.trainer))
            self._open_directory(runner)
        self.initial_flag = True
        if self.dataloader is None and self._best.is_used:
            self._best.warn_without_validation()
        dataset = getattr(self.dataloader, "dataset", None)
        is_needed = self._metric is None and not self._has_own_evaluation()
        if dataset is not None and is_needed and not hasattr(dataset, "evaluate"):
            raise TypeError(
                f"{type(dataset).__name__} has no evaluate(results, logger=None, ...); write it, "
                "or give EvalHook(metric=...) a torchmetrics Metric"
            )
        if self.dataloader is not None and self.by_epoch and not runner.counts_epochs:
            rank_zero_warn(
                f"{type(self).__name__} never evaluates: by_epoch=True, and this run counts "
                "iterations; give by_epoch=False"
            )

    def _note_best_path(self) -> None:
        """Set mmcv's ``best_ckpt_path`` to the path in ``runner.meta``."""
        suffix = self._best.ranking.suffix(self.key_indicator)
        self.best_ckpt_path = self._best.messages.get(f"best_ckpt{suffix}", self.best_ckpt_path)

    def _open_directory(self, runner: Runner) -> None:
        """Check the directory of the files, and make an ``out_dir``."""
        self._best.open(make=bool(self.out_dir))

    def _warn_of_lightnings_best(self, callbacks: list[Any]) -> None:
        """Warn if ``ckpt_path="best"`` is another file."""
        saving = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint)]
        is_ours = any(isinstance(callback, SavingHook) for callback in saving)
        if saving and is_lightnings_default(saving[0]) and not is_ours:
            warn(
                f"{type(self).__name__}(save_best={self.save_best!r}) runs beside Lightning's "
                'default ModelCheckpoint, whose newest file ckpt_path="best" is. Give the Trainer '
                'a CheckpointHook() too: then "best" is this hook\'s; or '
                "Trainer(enable_checkpointing=False), and ckpt_path=hook.best_ckpt_path",
            )

    def _has_own_evaluation(self) -> bool:
        """Return whether a subclass overrides the evaluation, with needs of its own."""
        methods = self.evaluate, self._do_evaluate
        return not all(map(is_ours, methods))

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
            loggers = loggers_of(runner.hooks)
            for hook in loggers:
                hook.after_train_iter(runner)
            if self._drops_logged(runner, loggers):
                runner.log_buffer.clear()  # else loggers would log the training's values twice
        self._evaluate(runner)

    def _drops_logged(self, runner: Runner, loggers: Sequence[Any]) -> bool:
        """Return whether a logger averages the buffer's last values instead of a window's."""
        return not all(is_ours(hook.after_train_iter) for hook in loggers)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Without a loader, take the scores of the Trainer's own validation.

        In the sanity check, warn of a key that is not logged.
        """
        if self.dataloader is None and trainer.sanity_checking:
            self._best.warn_of_unlogged(trainer)
        elif self.dataloader is None and trainer.state.fn == TrainerFn.FITTING:
            runner = Driver.of(trainer).runner
            if self._best.count_validation(self._should_evaluate(runner)):
                self._evaluate(runner)
        super().on_validation_end(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write an epoch's files after the module's own event, as Lightning's ``Checkpoint``s do.

        A file from before would leave the event, and the epoch's values in the log, out.
        """
        super().on_train_start(trainer, pl_module)
        fit = Driver.of(trainer).fit
        fit.patch(pl_module, "on_train_epoch_end", after=lambda _: self._write_due())

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write due files where no event of the module follows: in a run with its own loop."""
        if not progress.ends_epoch(trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if ``interval`` fits none of the Trainer's validations; wait for the thread."""
        self._best.warn_if_none_compared(trainer, self.interval, self.by_epoch, self.start)
        super().on_train_end(trainer, pl_module)

    def _decide_interval(self, runner: Runner) -> None:
        """Set the interval in force, if intervals are dynamic."""
        if self._dynamic is not None:
            milestones, intervals = self._dynamic
            self.interval = intervals[bisect.bisect(milestones, self._counter(runner) + 1) - 1]

    def _should_evaluate(self, runner: Runner) -> bool:
        """Return whether to evaluate after the present epoch or iteration."""
        done = self._counter(runner) + 1
        if self.dataloader is None:  # a validation within an epoch counts for the epoch
            done = runner.trainer.current_epoch + 1 if self.by_epoch else runner.iter
        return is_due(done, self.start, self.interval)

    def _counter(self, runner: Runner) -> int:
        return int(runner.epoch if self.by_epoch else runner.iter)

    def _evaluated_at(self, runner: Runner) -> Moment:
        if self.dataloader is None:
            return validated_at(runner, self.by_epoch)
        done = self._counter(runner) + (not self._at_start)
        return Moment(done, "epoch" if self.by_epoch else "iter")

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
            # now: the first iteration's values are another line
            for hook in loggers_of(runner.hooks):
                hook.after_train_epoch(runner)
        elif runner.log_buffer.ready:
            scores = ", ".join(f"{k}: {v}" for k, v in runner.log_buffer.output.items())
            runner.logger.info("Evaluated before training: %s", scores)
            runner.log_buffer.clear_output()
        self._write_due()  # now: the first step changes the weights

    # -- how -------------------------------------------------------------------------------

    def _evaluate(self, runner: Runner) -> None:
        with contextlib.ExitStack() as stack:
            if self.dataloader is not None:  # else the Trainer has validated
                for hook in natives_with("_around_evaluation", runner.hooks):
                    stack.enter_context(hook._around_evaluation(runner.trainer))
            stack.enter_context(self._state_restored(runner))
            self._do_evaluate(runner)
        if self._best.is_used:  # all ranks keep the checkpoints that rank 0 has chosen
            self._best.share_rank_0s_choice()
            self._note_best_path()

    @contextlib.contextmanager
    def _state_restored(self, runner: Runner) -> Iterator[None]:
        """Restore train flags and random state after the block, and mute the module's logging."""
        try:
            flags = model_state.keep_train_flags(runner.module, runner.model)
            with isolated_model_calls(runner), flags:
                yield
        finally:
            runner.flags_before_eval = None

    def _do_evaluate(self, runner: Runner) -> None:
        """Run the model on the loader, evaluate the results, compare the scores."""
        self.latest_results = self._test(runner)
        self._report_results(runner, self.latest_results)

    def _report_results(self, runner: Runner, results: Any) -> None:
        count = sized_len(self.dataloader)  # None without a loader, or for an iterable data set
        if count is not None:
            runner.log_buffer.output["eval_iter_num"] = count
        key_score = self.evaluate(runner, results)
        if self.save_best and self._is_score(runner, key_score):
            self._save_ckpt(runner, key_score)

    def _is_score(self, runner: Runner, key_score: Any) -> bool:
        """Return whether ``evaluate`` returned a score, not None."""
        return key_score is not None

    def _test(self, runner: Runner) -> Any:
        """Return the results of ``test_fn``, or the scores of a metric or of the Trainer."""
        if self.dataloader is None:
            return self._best.logged_scores(runner.trainer)
        if self._metric is None:
            return self._run_test(runner)
        is_own = self.test_fn not in (single_gpu_test, multi_gpu_test)
        pairs = self._run_test(runner) if is_own else predictions(runner.model, self.dataloader)
        return measure(self._metric, pairs, runner.module.device, over_ranks=self._over_ranks)

    def _run_test(self, runner: Runner) -> Any:
        return self.test_fn(runner.model, self.dataloader)

    def evaluate(self, runner: Runner, results: Any) -> Any:
        """Log all scores; return the score named by ``save_best``, or a dict of several scores."""
        scores = results
        if self.dataloader is not None and self._metric is None:
            dataset: Any = self.dataloader.dataset
            scores = dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs)
        scores = self._values(runner, scores)
        if self.dataloader is not None:  # else the module has logged the scores
            runner.log_buffer.output.update(scores)
            runner.log_buffer.ready = True
        if self.save_best is None:
            return None
        keys = self.save_best if isinstance(self.save_best, list) else [self.key_indicator]
        may_come = self._evaluated_at(runner).is_within_epoch
        chosen = self._best.chosen(scores, keys, may_come=may_come)
        if self.key_indicator == "auto" and chosen:
            self._init_rule(self.rule, next(iter(chosen)))
        return chosen if isinstance(self.save_best, list) else chosen.get(self.key_indicator)

    def _values(self, runner: Runner, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores in the form of the log."""
        return plain_values(scores)

    def _save_ckpt(self, runner: Runner, key_score: Any) -> None:
        """Mark a checkpoint as due if a score, or any score of a dict, is among the best."""
        scores = key_score if isinstance(key_score, Mapping) else {self.key_indicator: key_score}
        self._best.compare(scores, self._evaluated_at(runner))
        self._note_best_path()


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
            ``.eval_hook`` in the work directory by default. On nodes without a shared directory
            give ``gpu_collect=True``.
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
        dataloader: DataLoader[Any] | Literal["validation"] | None = None,
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
        EvalHook.__init__(  # the stand-in's DistEvalHook has this constructor, too
            *(self, dataloader, start, interval, by_epoch, save_best, rule, test_fn),
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

        def reported() -> dict[str, Any]:
            self._report_results(runner, self.latest_results)
            return plain_values(runner.log_buffer.output)

        scores = ranks.from_rank_0(reported, runner.world_size)
        if runner.world_size > 1:  # for callbacks that decide by a score on every rank
            scores.pop("eval_iter_num", None)
            runner.callback_values.publish(scores)

    def _run_test(self, runner: Runner) -> Any:
        gpu_collect = self.gpu_collect or not runner.may_write
        tmpdir = self.tmpdir
        if tmpdir is None and files.is_local(runner.work_dir):
            tmpdir = files.join(runner.work_dir, ".eval_hook")
        test_fn: Callable[..., Any] = self.test_fn
        return test_fn(runner.model, self.dataloader, tmpdir=tmpdir, gpu_collect=gpu_collect)


def broadcast_bn_buffers(model: torch.nn.Module) -> None:
    """Broadcast the BatchNorm statistics of rank 0 to all ranks."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            for buffer in (module.running_mean, module.running_var):
                if buffer is not None:
                    distributed.broadcast(buffer, 0)


# -- intervals -------------------------------------------------------------------------------------


def intervals_of(hook: EvalHook) -> list[int]:
    """Return the interval of a hook, and the intervals of ``dynamic_intervals``."""
    return [hook.interval, *(hook._dynamic[1] if hook._dynamic else [])]


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
            f"1)], got {shown(dynamic_intervals)}"
        )
    milestones, intervals = [0, *(m for m, _ in pairs)], [interval, *(i for _, i in pairs)]
    if any(a >= b for a, b in itertools.pairwise(milestones)) or min(intervals) < 1:
        raise ValueError(
            "dynamic_intervals must have increasing milestones above 0 and intervals of at least "
            f"1, got {shown(dynamic_intervals)}"
        )
    return milestones, intervals
