"""Keep the best checkpoints by scores: the part ``BestFiles``, and ``BestCheckpointHook``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import validation
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.directory import checked_out_dir
from lightning_hooks.hooks.saving.due import (
    Due,
    DueFiles,
    SavingHook,
    files_of,
    last_directory,
)
from lightning_hooks.hooks.saving.export import load_weights
from lightning_hooks.hooks.saving.lightning_view import BestFields
from lightning_hooks.hooks.saving.ranking import (
    GREATER,
    LESS,
    LESS_ENDINGS,
    RULES,
    Ranking,
    Rule,
    best_name,
    checked_rule,
    is_due,
    key_list,
    names,
    number,
)
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.entry import best_series
from lightning_hooks.storage.find_checkpoints import best_valid
from lightning_hooks.utils import ranks
from lightning_hooks.utils.arguments import check_bool, check_int, shown
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import without_user
from lightning_hooks.utils.suggestions import UnknownNameError, suggest
from lightning_hooks.utils.warn import rank_zero_warn, warn

__all__ = ["BestCheckpointHook", "BestFiles", "Moment", "best_files_of", "inferred", "validated_at"]

ChooseRule = Callable[[Any, str], Rule | None]
"""Return the rule for a given rule, or None, and a key; None for the key ``"auto"``."""


class Moment(NamedTuple):
    """The moment of a comparison, as in the name of a best file."""

    done: int
    unit: str
    """``"epoch"`` or ``"iter"``."""
    is_within_epoch: bool = False
    """Whether the Trainer validates within an epoch, or in a run without epochs."""


def validated_at(runner: Runner, by_epoch: bool) -> Moment:
    """Return the moment of the Trainer's validation."""
    has_ended = runner.counts_epochs and runner.epoch > runner.trainer.current_epoch
    if by_epoch and not has_ended:  # the epoch's number belongs to the end of the epoch
        return Moment(runner.iter, "iter", is_within_epoch=True)
    return Moment(runner.epoch, "epoch") if by_epoch else Moment(runner.iter, "iter")


def inferred(greater_keys: Any, less_keys: Any) -> ChooseRule:
    """Return a function that infers the rule of a key from the names given to a hook."""
    greater = names("greater_keys", greater_keys, GREATER)
    less = names("less_keys", less_keys, LESS)

    return partial(_inferred, greater, less)


def _inferred(greater: Sequence[str], less: Sequence[str], rule: Any, key: str) -> Rule | None:
    name = checked_rule(rule, key, greater, less, LESS_ENDINGS)
    return None if name is None or key == "auto" else RULES[name]


class BestFiles(DueFiles):
    """The best checkpoints by one or several keys: rank 0 ranks scores, all ranks write files.

    Args:
        store: Writes the files.
        owner: The hook's name, for messages.
        save_best: The keys, as ``BestCheckpointHook``'s; None for no files.
        rule: The rule or rules, as ``BestCheckpointHook``'s.
        keep_best: The number of files to keep by each key.
        choose_rule: Chooses the rule of a key.
    """

    kind = "best"

    def __init__(
        self,
        store: CheckpointStore,
        owner: str,
        save_best: Any = None,
        rule: Any = None,
        keep_best: Any = 1,
        *,
        choose_rule: ChooseRule,
    ) -> None:
        super().__init__(store)
        self.owner, self.keys = owner, key_list(save_best)
        check_int("keep_best", keep_best, 1)
        self.ranking = Ranking(keep_best)
        self._choose_rule, self._rule = choose_rule, rule
        self._seen = self._compared = 0  # the Trainer's validations in this run, and those compared
        self._warned_of: Sequence[str] = ()
        self._logged_keys: Set[str] = frozenset()  # names of the values logged in validations
        is_list = isinstance(rule, (list, tuple))
        if is_list and len(rule) != len(self.keys):
            raise ValueError(f"rule must have one for each key of save_best, got {shown(rule)}")
        rules = rule if is_list else [rule] * len(self.keys)
        for key, rule_of_key in reversed(list(zip(self.keys, rules, strict=True))):
            self._add(key, choose_rule(rule_of_key, key))

    def _add(self, key: str, rule: Rule | None) -> None:
        if rule is not None:
            self.ranking.rules = {key: rule, **self.ranking.rules}

    @property
    def is_used(self) -> bool:  # type: ignore[override]
        """Whether there are keys."""
        return bool(self.keys)

    @property
    def path(self) -> str:
        """The path of the best file by the first key; empty before the first."""
        return self.fields().best_model_path

    def fields(self) -> BestFields:
        """Return the best files by the first key."""
        return self.ranking.fields(self.messages)

    # -- the beginning of a run ------------------------------------------------------------

    def begin(self, runner: Runner, owner: SavingHook) -> None:
        """Begin a run of the hook, with the best files so far from ``runner.meta``."""
        super().begin(runner, owner)
        if not self.is_used:
            return
        if runner.meta is None:
            warn("runner.meta is None. Creating an empty one.")
            runner.meta = {}
        runner.meta.setdefault("hook_msgs", {})
        self._seen = self._compared = 0
        self.ranking.current = None
        in_use = [best for best in best_files_of(runner.hooks) if best.is_used]
        self.ranking.is_first = next(iter(in_use), self) is self
        self.ranking.begin(self.messages)
        self._require_distinct_keys()

    def find(self, runner: Runner, owner: SavingHook) -> None:
        """Find the best files of a finished run."""
        super().find(runner, owner)
        if self.is_used and runner.may_write:
            self._rank_listed()

    def open(self, *, make: bool) -> None:
        """Check the directory, and delete the files that a killed process has left superseded.

        Args:
            make: Whether to make the directory.
        """
        super().open(make=make)
        runner = self.store.runner
        for key in self.ranking.rules:
            choose_old = self.ranking.choose_old(self.messages, key)
            self.store.clean_up(best_series(key), choose_old, runner.iter)
        if runner.iter > 0 and runner.may_write:
            self._rank_listed()

    def _rank_listed(self) -> None:
        """Rank the files of the run until now, also those saved after the resumed file.

        A file may be written before the comparison of the same validation.
        """
        runner = self.store.runner
        keys = {best_series(key): key for key in self.ranking.rules}
        for entry in manifest.read(self.store.path) if runner.rank == 0 else ():
            key, is_own = keys.get(entry.series), entry.run == runner.run_id
            if key and is_own and entry.iter <= runner.iter:
                path = files.join(self.store.path, entry.name)
                self.ranking.insert(self.messages, key, entry.score, path)
        self.ranking.current = None
        self.share_rank_0s_choice()

    def _require_distinct_keys(self) -> None:
        others = [best for best in best_files_of(self.store.runner.hooks) if best is not self]
        for key in self.ranking.rules:
            if any(key in best.ranking.rules for best in others):
                raise ValueError(
                    f"two hooks save the best by {key!r}: they would take each other's scores and "
                    "files for their own; give one of them another key"
                )

    # -- comparing -------------------------------------------------------------------------

    def compare(self, scores: Mapping[str, Any], moment: Moment) -> None:
        """Rank scores by key; a file is due if any is among the best."""
        messages = self.messages
        for key, score in scores.items():
            if key not in self.ranking.rules:  # the first score resolves "auto"
                self._add(key, self._choose_rule(self._rule, key))
                self._require_distinct_keys()
            name, ranked = best_name(key, moment.unit, moment.done), {**messages}
            # without files, as with fast_dev_run, no path is told
            path = files.join(self.store.path, name) if self.store.runner.may_write else ""
            if self.ranking.insert(ranked, key, score, path):
                self.store.thread.wait()  # what is told of the file before names that file
                messages.update(ranked)
                self.due.append(Due(name, f"{moment.done} {moment.unit}", key, number(score, key)))

    def share_rank_0s_choice(self) -> None:
        """Share rank 0's choice, so that all ranks write a checkpoint or none."""
        runner, messages = self.store.runner, self.messages
        if runner.world_size == 1:
            return
        own = {name: value for name, value in messages.items() if name.startswith("best_")}
        choice = self.due, own, self.ranking.current
        self.due, of_rank_0, self.ranking.current = runner.trainer.strategy.broadcast(choice)
        for name in own:
            del messages[name]
        messages.update(of_rank_0)

    def write(self, due: Due) -> None:
        """Write a best file."""
        name, moment, key, score = due
        ranking, messages = self.ranking, self.messages
        choose_old, rule = ranking.choose_old(messages, key, name), ranking.rule(key)
        target = self.store.target(name, best_series(key), choose_old, score, rule)
        is_best = target.path == ranking.ranked(messages, key)[0][1]
        what = "Best" if is_best else f"Among the best {ranking.keep},"
        line = f"{what} {printable(key)} is {score:0.4f} at {moment}: saved {name}"
        self.store.write(target, line)

    # -- the Trainer's own validations -----------------------------------------------------

    def after_validation(self, trainer: L.Trainer, by_epoch: bool, interval: int = 1) -> None:
        """Compare the values logged in each ``interval``-th validation.

        In the sanity check, warn of a key that is not logged.
        """
        if trainer.sanity_checking:
            self.warn_of_unlogged(trainer)
        elif trainer.state.fn == TrainerFn.FITTING:
            runner = Driver.of(trainer).runner
            done = trainer.current_epoch + 1 if by_epoch else runner.iter
            if self.count_validation(is_due(done, None, interval)):
                moment, scores = validated_at(runner, by_epoch), self.logged_scores(trainer)
                may_come = moment.is_within_epoch
                self.compare(self.chosen(scores, self._present_keys(), may_come=may_come), moment)
                self.share_rank_0s_choice()

    def count_validation(self, is_compared: bool) -> bool:
        """Count a validation, for the warning when none is compared; return the argument."""
        self._seen += 1
        self._compared += is_compared
        return is_compared

    def logged_scores(self, trainer: L.Trainer) -> dict[str, Any]:
        """Return the Trainer's metrics, without metrics logged by earlier validations alone."""
        now = validation.val_metrics(trainer)
        self._logged_keys = self._logged_keys | now.keys()
        metrics = {**now, **trainer.callback_metrics}
        return {k: v for k, v in metrics.items() if k in now or k not in self._logged_keys}

    def chosen(
        self, scores: Mapping[str, Any], keys: Sequence[str], *, may_come: bool
    ) -> dict[str, Any]:
        """Return the scores of some keys, the first score for ``"auto"``.

        Args:
            scores: All scores.
            keys: The keys.
            may_come: Whether a missing key may still be logged, within an epoch: rank 0 warns.

        Raises:
            UnknownNameError: (a KeyError) for a missing key at the end of an epoch.
        """
        if not scores:
            warn(
                "Since `eval_res` is an empty dict, the behavior to save the best checkpoint will "
                "be skipped in this evaluation.",
            )
            return {}
        self._report_missing(scores, keys, may_come)
        keys = [next(iter(scores)) if key == "auto" else key for key in keys]
        return {key: scores[key] for key in keys if scores.get(key) is not None}

    def _report_missing(
        self, scores: Mapping[str, Any], keys: Sequence[str], may_come: bool
    ) -> None:
        missing = _missing(keys, scores)
        if not missing or (may_come and self._warned_of == missing):
            return
        self._warned_of = missing
        message = f"{self.owner}: save_best={missing[0]!r} is no score; "
        message += suggest(missing[0], scores)
        if not may_come:
            raise UnknownNameError(message)
        if self.store.runner.rank == 0:
            warn(f"{message}. Nothing is compared where it is not logged")

    def _present_keys(self) -> Sequence[str]:
        """Return the keys; for ``"auto"`` the key of the first score, after the score."""
        return [self.ranking.key] if self.keys == ["auto"] else self.keys

    # -- warnings --------------------------------------------------------------------------

    def warn_of_unlogged(self, trainer: L.Trainer) -> None:
        """Warn of keys that the sanity check has not logged."""
        logged = validation.val_metrics(trainer)
        missing = _missing(self._present_keys(), logged)
        if logged and missing:
            rank_zero_warn(
                f"{self.owner}: the sanity check has logged no save_best={missing[0]!r}; "
                f"{suggest(missing[0], logged)}. The run stops at the end of an epoch that has not "
                "logged it either"
            )

    def warn_without_validation(self) -> None:
        """Warn if the Trainer does not validate in the fit."""
        reason = _why_no_validation(self.store.runner.trainer)
        if reason:
            keys = self.keys if len(self.keys) > 1 else self.keys[0]
            warn(f"save_best={keys!r} has nothing to compare: the Trainer {reason}")

    def warn_if_none_compared(
        self, trainer: L.Trainer, interval: int, by_epoch: bool, start: int | None = None
    ) -> None:
        """Warn at the end of a run if ``interval`` fits none of the Trainer's validations."""
        if self.is_used and self._seen and not self._compared and trainer.is_global_zero:
            unit = "epochs" if by_epoch else "iterations"
            begin = "" if start is None else f"start={start}, "
            warn(
                f"{self.owner}({begin}interval={interval}) compared none of the Trainer's "
                f"{self._seen} validations: it counts {unit}; interval=1 compares all",
            )


def _missing(keys: Sequence[str], scores: Mapping[str, Any]) -> list[str]:
    return [key for key in keys if key not in {*scores, "auto"}]


def best_files_of(hooks: Iterable[Any]) -> list[BestFiles]:
    """Return the best files of some hooks."""
    return [kind for kind in files_of(hooks) if isinstance(kind, BestFiles)]


@HOOKS.register_module()
class BestCheckpointHook(SavingHook, ModelCheckpoint):  # type: ignore[misc]
    """Keep the checkpoints with the best values logged in the Trainer's validation.

    Each validation in an ``interval``-th epoch compares every key by its own rule. For a score
    among the ``keep_best`` best, a file is written, and then the worst kept file is deleted. The
    file is ``best_<key>_epoch_<n>.pth`` for a validation at the end of an epoch, or
    ``best_<key>_iter_<n>.pth`` for a validation within an epoch. The files are like
    ``CheckpointHook``'s and listed in the same manifest. The ranking is in ``runner.meta``, and so
    continues in a resumed run.

    To Lightning, the hook is a ``ModelCheckpoint`` with ``monitor``, ``best_model_score`` and the
    other attributes (:class:`~lightning_hooks.hooks.saving.lightning_view.BestFields`).
    After a fit of the Trainer, ``ckpt_path="best"`` is the best file; in a new process,
    ``HookAdapter(hooks, work_dir=...).best_checkpoint`` finds the file.

    With ``load_at_end`` the module has the weights of the best file by the first key after a fit
    that ended, on all ranks: the average, where a hook keeps an average. ``trainer.test(module)``
    tests them, and a further fit goes on from them. After an error the module is left as it is.

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
        load_at_end: Whether the module has the best file's weights after the fit.
        save_optimizer: Whether to save the optimizer's state; without, the files are for loading
            weights, and a ``CheckpointHook`` has the files to resume from.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for values out of range, and for a key without a rule; with ``load_at_end`` at
            the start of a fit, for DeepSpeed, and beside an average with ``after_fit="raw"``; at
            the end, for a file with objects of other classes.
        FileNotFoundError: at the end, with ``load_at_end``, if the best file is missing.
        RuntimeError: at the end, with ``load_at_end``, if the best file is damaged.
        KeyError: for an unknown ``rule``; in a run, for a key that is not logged. A key that may
            still be logged, within an epoch, is warned of.

    Source: mmcv's ``EvalHook(save_best=...)``; mmengine's ``CheckpointHook`` for several keys.

    Note:
        Departures from mmcv: a hook of its own; several keys, and several files by each; more
        names are less, as in ``EvalHook``.
    """

    priority = "LOW"
    _transient = ("_loads",)
    _loads = False

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
        load_at_end: bool = False,
        save_optimizer: bool = True,
    ) -> None:
        if save_best is None:
            raise TypeError("save_best must be a str or a list of str, got None")
        check_int("interval", interval)
        if interval <= 0:
            raise ValueError(f"interval must be a positive number, but got {shown(interval)}")
        check_bool(by_epoch=by_epoch, load_at_end=load_at_end, save_optimizer=save_optimizer)
        self.load_at_end = load_at_end
        self.save_best, self.interval, self.by_epoch = save_best, interval, by_epoch
        self.out_dir = checked_out_dir(out_dir)
        self._best = BestFiles(
            CheckpointStore(background, on_saved),
            *(type(self).__name__, save_best, rule, keep_best),
            choose_rule=inferred(greater_keys, less_keys),
        )
        self._best.store.save_optimizer = save_optimizer
        self._files = [self._best]

    @property
    def rule(self) -> str | None:
        """The rule of the first key; None before the first score by ``"auto"``."""
        ranking = self._best.ranking
        return ranking.rule(ranking.key) if ranking.rules else None

    def before_run(self, runner: Runner) -> None:
        """Check the directory of the files; warn if the Trainer does not validate."""
        super().before_run(runner)
        self._best.open(make=bool(self.out_dir))
        self._best.warn_without_validation()
        if self.load_at_end:
            _check_loads(runner)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Compare the values logged in the validation."""
        self._best.after_validation(trainer, self.by_epoch, self.interval)
        super().on_validation_end(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if no validation was compared; wait for the thread."""
        self._best.warn_if_none_compared(trainer, self.interval, self.by_epoch)
        super().on_train_end(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note that the fit has ended, also without a batch left to train on."""
        super().on_fit_end(trainer, pl_module)
        self._loads = self.load_at_end and not trainer.fast_dev_run  # type: ignore[attr-defined]

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Load the best weights with ``load_at_end``, after an average has left its own."""
        super().teardown(trainer, pl_module, stage)
        loads, self._loads = self._loads, False
        if loads:
            self._load_best(trainer)

    def _load_best(self, trainer: L.Trainer) -> None:
        driver = Driver.of(trainer)
        logger, path = driver.runner.logger, self._best.path
        if driver.has_no_batch_left:  # files may have been lost since the run: the best intact one
            keys = [key for key in self._best.keys if key != "auto"]
            directory = last_directory(self, Driver.work_dir(trainer))
            find = partial(best_valid, directory, next(iter(keys), None))
            path = ranks.from_rank_0(find, trainer.world_size) or ""
        if not path:
            logger.warning("load_at_end: there is no best file, so the module has the last weights")
            return
        load_weights(path, trainer)
        logger.info("load_at_end: the module has the weights of %s", without_user(path))


def _check_loads(runner: Runner) -> None:
    """Raise if the best weights could not be loaded at the end of the fit.

    Raises:
        ValueError: for another strategy with shards than FSDP's, and for an average that the module
            does not keep.
    """
    strategy = runner.trainer.strategy
    shards = strategy.restore_checkpoint_after_setup
    if shards and not isinstance(strategy, (FSDPStrategy, ModelParallelStrategy)):
        raise ValueError(
            f"load_at_end=True is not for {type(strategy).__name__}: load the best file after the "
            'fit, or test with ckpt_path="best"'
        )
    averages: list[Any] = natives_with("_averages_weights", runner.hooks)
    raw = [hook for hook in averages if hook._after_fit == "raw"]
    if raw:
        raise ValueError(
            "load_at_end=True gives the module the best file's average, and "
            f"{type(raw[0]).__name__}(after_fit='raw') would test the last average: leave "
            "after_fit out"
        )


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
