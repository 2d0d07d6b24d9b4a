"""Evaluate a model at intervals, and keep the best checkpoints: ``EvalHook``."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader
from torchmetrics import Metric, MetricCollection

from lightning_hooks.engine.lightning_api import validation
from lightning_hooks.hooks.checkpoint.paths import refuse_other_storage
from lightning_hooks.hooks.evaluation.base import TimedEvaluation
from lightning_hooks.hooks.evaluation.inference import predictions, single_gpu_test
from lightning_hooks.hooks.evaluation.intervals import milestones_of
from lightning_hooks.hooks.evaluation.metrics import measure, plain_values
from lightning_hooks.utils.arguments import check_bool, check_function, check_int, check_path
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["EvalHook"]


class EvalHook(TimedEvaluation):
    """Evaluate the model after training epochs or iterations, and keep the best checkpoints.

    Each ``(n - start) % interval == 0``-th epoch or iteration ``n``, ``test_fn(model, loader)``
    makes the results, ``loader.dataset.evaluate(results, logger=..., **eval_kwargs)`` their
    scores. The model's train flags, the random state and what the module logs are left as they
    were. A best checkpoint is Lightning's, as ``CheckpointHook`` writes it and where it does.

    Without a loader, ``EvalHook(save_best="val_acc")``, the scores are what the module logs in the
    Trainer's own validation. Each validation is compared, also one within an epoch, whose file has
    the iteration in its name: ``best_val_acc_iter_150.pth`` beside ``best_val_acc_epoch_2.pth``.
    ``interval`` and ``start`` count the epoch that a validation is in.

    ==================================  ======================================================
    key in ``log_buffer.output``        value
    ==================================  ======================================================
    what ``evaluate`` returns           the loggers write them as a line of validation
    eval_iter_num                       batches in the loader
    ==================================  ======================================================

    Args:
        dataloader: The data to evaluate on; None for the Trainer's own validation, whose logged
            metrics are then the scores: nothing else is run and nothing is logged twice.
            ``"validation"`` is the same and needs no ``save_best``: a config's
            ``evaluation=dict(interval=2)`` only sets how often the Trainer validates.
        start: The first epoch or iteration that is evaluated, and what ``interval`` counts
            from. A run that has as many behind it at its start, 0 for any, is evaluated there
            too, if ``interval`` agrees. By default ``interval`` counts from 0.
        interval: Epochs or iterations from one evaluation to the next.
        by_epoch: Whether epochs or iterations are counted.
        save_best: The key of the score whose best checkpoint is kept, or a list of keys;
            ``"auto"`` for the first that ``evaluate`` returns. Beside a ``CheckpointHook``
            ``ckpt_path="best"`` is the best by the first key; beside Lightning's default
            ``ModelCheckpoint`` it is that callback's newest file, which is warned of.
        rule: ``"greater"`` or ``"less"``: which scores are better, one or a list as
            ``save_best``; by default inferred from the key, see ``greater_keys``.
        test_fn: A function of the model and the loader, by default
            ``single_gpu_test``.
        greater_keys: Names, or parts of names, of scores that are better when greater; by
            default acc, top, AR@, auc, precision, mAP, mDice, mIoU, mAcc, aAcc.
        less_keys: The same of scores that are better when less; by default loss. Names that end
            in loss, error, mse, mae, rmse or perplexity are less, unless ``greater_keys`` of your
            own find them.
        out_dir: Where best checkpoints are written: into the directory in it that has the name
            of the work directory. The work directory by default; fsspec's paths too.
        file_client_args: mmcv's choice of a storage; ``None`` or ``dict(backend="disk")``.
        dynamic_intervals: mmdet's ``[(milestone, interval), ...]``: the interval from the
            milestone-th epoch or iteration on.
        keep_best: How many checkpoints are kept by each key.
        background: Whether a thread writes them, as ``CheckpointHook``'s.
        on_saved: Called with the path of each when it is on the disk, as ``CheckpointHook``'s.
        **eval_kwargs: Arguments of ``evaluate``. A torchmetrics ``Metric`` or
            ``MetricCollection`` as ``metric`` takes its place: it is updated with the prediction
            and the target of every batch, or the pairs of them that ``test_fn`` returns.

    Raises:
        TypeError: for an argument of the wrong type, and with neither ``dataloader`` nor
            ``save_best``; in a run, for a data set without ``evaluate``.
        ValueError: for values out of range, and where no rule can be inferred from a key.
        KeyError: for an unknown ``rule``; in a run, for a key that is not among the scores. One
            that may still be logged, within an epoch or before ``interval``, is warned of.

    Source: mmcv's and mmdet's ``EvalHook``. Not in the registry, as in mmcv. By iteration it has
    to come after ``IterTimerHook``, as there, for its scores to be a line of their own.

    Note:
        Departures from mmcv: names that end in loss, error, mse, mae, rmse or perplexity are less
        (there most are refused, and ``top1_error`` is greater); a score of exactly 0 counts, NaN is
        never the best; the model is left in the mode it was in, also by the evaluation before
        training; ``less_keys`` may be a string; best files are Lightning's, and the old one is
        deleted after the new one is on the disk; two hooks that save the best by the same key are
        refused; a slash in a key makes no directory; files of a run that mmcv began stay; before
        training a file is named by what is done; the random state stays; an evaluation before
        iteration 1 is logged by itself, one before epoch 1 as text.
    """

    latest_results: Any = None
    metric: Metric | MetricCollection | None = None
    _warned_of: Sequence[str] = ()
    _logged_keys: Set[str] = frozenset()
    """Values that the module has logged in validations."""

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
        idles = isinstance(dataloader, str) and dataloader == "validation"
        dataloader = None if idles else dataloader
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
        needs = dataloader is None and save_best is None and not idles
        if needs and not self._evaluates_in_its_own_way():
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
        """Raise or warn now if the evaluation could not work later."""
        super().before_run(runner)
        reason = validation.why_none(runner.trainer) if self.dataloader is None else ""
        if self.save_best and reason:
            message = f"save_best={self.save_best!r} has nothing to compare: the Trainer {reason}"
            warnings.warn(message, stacklevel=2)
        if self._evaluates_in_its_own_way():
            return
        dataset = getattr(self.dataloader, "dataset", None)
        if dataset is not None and self.metric is None and not hasattr(dataset, "evaluate"):
            raise TypeError(
                f"{type(dataset).__name__} has no evaluate(results, logger=None, ...); write it, "
                "or give EvalHook(metric=...) a torchmetrics Metric"
            )

    def _evaluates_in_its_own_way(self) -> bool:
        """Whether a subclass has methods of its own, which may need something else."""
        methods = self.evaluate, self._do_evaluate
        return not all(m.__module__.startswith("lightning_hooks.") for m in methods)

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
        """Whether ``evaluate`` returned a score, and no None for want of one."""
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
        """Return what the Trainer has, without what only earlier validations have logged."""
        now = validation.val_metrics(trainer)
        self._logged_keys = self._logged_keys | now.keys()
        found = {**now, **trainer.callback_metrics}
        return {key: found[key] for key in found if key in now or key not in self._logged_keys}

    def evaluate(self, runner: Any, results: Any) -> Any:
        """Log all scores; return the one that ``save_best`` names, or a dict of several."""
        scores = results
        if self.dataloader is not None and self.metric is None:
            dataset: Any = self.dataloader.dataset
            scores = dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs)
        scores = self._values(runner, scores)
        if self.dataloader is not None:  # else the loggers have what the module has logged
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
        self._report_missing(runner, scores, may_come=self._is_within_epoch(runner))
        if isinstance(self.save_best, list):
            return {key: scores[key] for key in self.save_best if key in scores}
        return scores.get(self.key_indicator)

    def _values(self, runner: Any, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores as they are logged."""
        return plain_values(scores)

    def _look_for_keys(self, runner: Any) -> None:
        if self.save_best is not None and self.key_indicator != "auto":
            self._report_missing(runner, self._test(runner), may_come=True)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the scores; in the sanity check, warn of a key that is not logged there."""
        if trainer.sanity_checking:
            self._warn_of_unlogged(validation.val_metrics(trainer))
        super().on_validation_end(trainer, pl_module)

    def _warn_of_unlogged(self, logged: Mapping[str, Any]) -> None:
        keys = self.save_best if isinstance(self.save_best, list) else [self.key_indicator]
        missing = [key for key in keys if key not in {*logged, "auto"}]
        if self.save_best is not None and self.dataloader is None and logged and missing:
            rank_zero_warn(
                f"{type(self).__name__}: the sanity check has logged no save_best={missing[0]!r}; "
                f"{suggest(missing[0], logged)}. Where training_step does not log it either, the "
                "first validation stops the run"
            )

    def _report_missing(self, runner: Any, scores: Mapping[str, Any], *, may_come: bool) -> None:
        """Report keys that are not among the scores.

        Args:
            runner: The run; rank 0 warns.
            scores: The scores.
            may_come: Whether a key may be among those of a later evaluation: then it is warned of.

        Raises:
            UnknownNameError: (a KeyError) if one is missing for good.
        """
        keys = self.save_best if isinstance(self.save_best, list) else [self.key_indicator]
        missing = [key for key in keys if key not in scores]
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
