"""Compare scores by mmcv's rules, and keep the checkpoints with the best scores."""

from __future__ import annotations

import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks.engine.driver.collect import is_lightnings_default
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.hooks.checkpoint.best_fields import BestFields, Standing
from lightning_hooks.hooks.checkpoint.model_checkpoint import ModelCheckpointHook
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.storage import files
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.earlier_files import best_series
from lightning_hooks.storage.file_names import as_name
from lightning_hooks.storage.manifest import Entry
from lightning_hooks.utils.arguments import check_int
from lightning_hooks.utils.suggestions import UnknownNameError

__all__ = ["BestCheckpoints", "best_name", "infer_rule", "key_list", "names", "number", "ranked"]

GREATER = ["acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc"]
LESS = ["loss"]
LESS_ENDINGS = ("loss", "error", "mse", "mae", "rmse", "perplexity")


class _Due(NamedTuple):
    """A file to write."""

    key: str
    path: str
    when: str
    """The moment for the log, as in "3 epoch"."""


class BestCheckpoints(BestFields, CheckpointWriter):
    """Compare scores by mmcv's rules, and write a checkpoint for a score among the best.

    Scores and paths are kept in ``runner.meta``, and so in every checkpoint. A file no longer among
    the best is deleted when the next best file is on the disk.

    ================================  ========================================================
    key in ``runner.meta``            value
    ================================  ========================================================
    hook_msgs["best_score"]           the best score by the first key of the first such hook
    hook_msgs["best_ckpt"]            the path of the best file
    hook_msgs["best_score_<key>"]     the best score by another key; ``best_ckpt_<key>``
    hook_msgs["best_ckpts"]           ``[score, path]`` by key, best first
    ================================  ========================================================

    ``rule``, ``key_indicator`` and ``compare_func`` belong to the first key. A subclass sets
    ``out_dir``, calls ``_init_comparison`` in its constructor and ``_save_ckpt`` with every score,
    and defines ``_evaluated_at``. The class attributes of the rules, and ``_init_rule``, may be
    overridden as in mmcv.
    """

    keeps = "best"

    rule_map: ClassVar[dict[str, Callable[[Any, Any], bool]]] = {
        "greater": operator.gt,
        "less": operator.lt,
    }
    init_value_map: ClassVar[dict[str, float]] = {"greater": -math.inf, "less": math.inf}
    _default_greater_keys: ClassVar[list[str]] = GREATER
    _default_less_keys: ClassVar[list[str]] = LESS
    less_endings: tuple[str, ...] = LESS_ENDINGS
    """Endings of names with better scores when less; none in mmcv."""

    save_best: str | list[str] | None = None
    keep_best: int = 1
    rule: str | None = None
    key_indicator: str = ""
    compare_func: Callable[[Any, Any], bool]

    best_ckpt_path: str | None = None
    _due: list[_Due] | None = None
    _current: float | None = None
    _deleted: set[str]
    """Files deleted by the writer, perhaps in a thread, and not yet removed from rankings."""

    def _init_comparison(
        self, save_best: Any, rule: Any, greater_keys: Any, less_keys: Any, keep_best: Any
    ) -> None:
        """Check and set the arguments of the comparison."""
        keys = key_list(save_best)
        check_int("keep_best", keep_best, 1)
        self.greater_keys = names("greater_keys", greater_keys, self._default_greater_keys)
        self.less_keys = names("less_keys", less_keys, self._default_less_keys)
        self.save_best = list(save_best) if isinstance(save_best, tuple) else save_best
        self.keep_best = keep_best
        many = isinstance(rule, (list, tuple))
        if many and len(rule) != len(keys):
            raise ValueError(f"rule must have one for each key of save_best, got {rule!r}")
        rules = rule if many else [rule] * len(keys)
        self._rules: dict[str, tuple[Any, float]] = {}
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
        self.rule = rule
        self.key_indicator = key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def _add_rule(self) -> None:
        if self.rule is not None and self.key_indicator != "auto":
            self._rules[self.key_indicator] = (self.compare_func, self.init_value_map[self.rule])

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files: with ``save_best``."""
        return self.save_best is not None

    # -- which are the best ----------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Take the best files so far from ``runner.meta``."""
        super().before_run(runner)
        self._due, self._deleted, self._current = None, set(), None
        if self.save_best is None:
            return
        if runner.meta is None:
            warnings.warn("runner.meta is None. Creating an empty one.", stacklevel=2)
            runner.meta = {}
        messages = runner.meta.setdefault("hook_msgs", {})
        self.best_ckpt_path = messages.get(f"best_ckpt{self._suffix(runner, self.key_indicator)}")
        self._require_distinct_keys(runner)
        self._warn_of_lightnings_best(runner.trainer.callbacks)
        self._open_directory(runner)

    def _open_directory(self, runner: Any) -> None:
        """Check the directory of the files, and make an ``out_dir``."""
        directory = self._prepare_directory(runner, make=bool(self.out_dir))
        if self.out_dir:
            runner.logger.info("The best checkpoint will be saved to %s", directory)

    def best_source(self, hooks: Sequence[Any]) -> BestFields:
        """Return the hook itself."""
        return self

    def standing(self) -> Standing:
        """Return the best files by the first key."""
        key, ranking = self.key_indicator, []
        if key not in self._rules:  # "auto", before the first score
            return Standing(keep=self.keep_best)
        if self._runner is not None and self._runner.meta:
            ranking = self._ranking(self._runner, key)[: self.keep_best]
        kept = [(score, path) for score, path in ranking if path]
        return Standing(key, self.rule, self.keep_best, kept, self._current)

    def _all_of_run(self, runner: Any) -> list[Any]:
        return [h for h in runner.hooks if isinstance(h, BestCheckpoints) and h.save_best]

    def _suffix(self, runner: Any, key: str) -> str:
        """Return the suffix of mmcv's names in ``hook_msgs``: empty for the first key of all."""
        is_first = next(iter(self._all_of_run(runner)), self) is self and key == self.key_indicator
        return "" if is_first else f"_{key}"

    def _require_distinct_keys(self, runner: Any) -> None:
        others = [hook for hook in self._all_of_run(runner) if hook is not self]
        for key in self._rules:
            if any(key in other._rules for other in others):
                raise ValueError(
                    f"two hooks save the best by {key!r}: they would take each other's scores and "
                    "files for their own; give one of them another key"
                )

    def _warn_of_lightnings_best(self, callbacks: list[Any]) -> None:
        """Warn if ``ckpt_path="best"`` is another file."""
        found = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint)]
        is_ours = any(isinstance(callback, ModelCheckpointHook) for callback in found)
        if found and is_lightnings_default(found[0]) and not is_ours:
            warnings.warn(
                f"{type(self).__name__}(save_best={self.save_best!r}) runs beside Lightning's "
                'default ModelCheckpoint, whose newest file ckpt_path="best" is. Give the Trainer '
                'a CheckpointHook() too: then "best" is this hook\'s; or '
                "Trainer(enable_checkpointing=False), and ckpt_path=hook.best_ckpt_path",
                stacklevel=2,
            )

    def _ranking(self, runner: Any, key: str) -> list[list[Any]]:
        """Return the ranking by a key: ``[score, path]`` each, at most one in a run of mmcv's."""
        messages = runner.meta["hook_msgs"]
        if "best_ckpts" in messages or "best_score" not in messages or self._suffix(runner, key):
            return [*messages.get("best_ckpts", {}).get(key, [])]
        return [[messages["best_score"], messages.get("best_ckpt") or ""]]

    def _save_ckpt(self, runner: Any, key_score: Any) -> None:
        """Mark a checkpoint as due if a score, or any score of a dict, is among the best."""
        done, unit = self._evaluated_at(runner)
        scores = key_score if isinstance(key_score, Mapping) else {self.key_indicator: key_score}
        messages = runner.meta["hook_msgs"]
        self._forget_deleted(runner)
        for key, value in scores.items():
            score = number(value)
            if key not in self._rules:  # the first score resolves "auto"
                self._add_rule()
                self._require_distinct_keys(runner)
            better, worst = self._rules[key]
            if score is None or not better(score, worst):  # NaN is never better
                continue
            path = files.join(self.directory(runner), best_name(key, unit, done))
            before = self._ranking(runner, key)
            ranking = ranked(before, score, path, better)
            if ranking == before or [score, path] not in ranking[: self.keep_best]:
                continue
            messages["best_ckpts"] = {**messages.get("best_ckpts", {}), key: ranking}
            suffix = self._suffix(runner, key)
            messages[f"best_score{suffix}"], messages[f"best_ckpt{suffix}"] = ranking[0]
            if key == self.key_indicator:
                self.best_ckpt_path, self._current = ranking[0][1], score
            self._due = [*(self._due or []), _Due(key, path, f"{done} {unit}")]

    def _evaluated_at(self, runner: Any) -> tuple[int, str]:
        """Return the epochs or iterations done at a score, and the unit."""
        raise NotImplementedError(f"{type(self).__name__} must define _evaluated_at(runner)")

    def _take_rank_0s_decision(self, runner: Any) -> None:
        """Share rank 0's decision, so that all ranks write a checkpoint or none."""
        if self.save_best is None or runner.world_size == 1:
            return
        messages = runner.meta["hook_msgs"]
        own = {k: v for k, v in messages.items() if k.startswith("best_")}
        decision = self._due, own, self.best_ckpt_path, self._current
        found = runner.trainer.strategy.broadcast(decision)
        for key in own:
            del messages[key]
        self._due, of_rank_0, self.best_ckpt_path, self._current = found
        messages.update(of_rank_0)

    # -- the files -------------------------------------------------------------------------

    def _write(self, trainer: L.Trainer) -> None:
        due, self._due = self._due or [], None
        runner = Driver.of(trainer).runner
        if not runner.writes_files:
            return
        for new in due:
            directory, name = self.directory(runner), os.path.basename(new.path)
            ranking = self._ranking(runner, new.key)
            target = Target(
                *(directory, name, runner.run_id, best_series(new.key), self.save_optimizer),
                score=next((score for score, path in ranking if path == new.path), None),
                rule="greater" if self._rules[new.key][1] < 0 else "less",
            )
            old = {
                path: os.path.basename(path)
                for _, path in ranking[self.keep_best :]
                if path.startswith(files.join(directory, ""))
            }
            choose_old = partial(_of_names, names=old.values(), new=name)
            report = partial(self._report, runner, new, ranking, old)
            self._write_file(trainer, new.path, target, choose_old, report)
        self._forget_deleted(runner)

    def _report(
        self,
        runner: Any,
        new: _Due,
        ranking: list[list[Any]],
        old: dict[str, str],
        deleted: list[str],
    ) -> None:
        """Log the new file and the deleted files."""
        directory, name = os.path.split(new.path)
        best, path = ranking[0]
        if path == new.path:
            runner.logger.info("Now best checkpoint is saved as %s.", name)
            runner.logger.info("Best %s is %0.4f at %s.", new.key, best, new.when)
        else:
            among = f"Checkpoint among the best {self.keep_best}"
            runner.logger.info("%s is saved as %s.", among, name)
        for other in deleted:
            path = files.join(directory, other)
            runner.logger.info("The previous best checkpoint %s was removed", path)
        if files.exists(new.path):
            self._deleted |= old.keys()

    def _forget_deleted(self, runner: Any) -> None:
        """Remove deleted files from the rankings, on the training's thread."""
        rankings = runner.meta["hook_msgs"].get("best_ckpts", {})
        for key in self._rules.keys() & rankings.keys():
            kept, rest = rankings[key][: self.keep_best], rankings[key][self.keep_best :]
            rankings[key] = [*kept, *(entry for entry in rest if entry[1] not in self._deleted)]

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread, and remove deleted files from the rankings."""
        super().on_train_end(trainer, pl_module)
        if self.save_best is not None:
            self._forget_deleted(Driver.of(trainer).runner)


def _of_names(existing: list[Entry], names: Collection[str], new: str) -> list[Entry]:
    """Return the entries of names; none if the user's writer has not finished ``new``."""
    is_written = any(entry.name == new for entry in existing)
    return [entry for entry in existing if is_written and entry.name in names]


def infer_rule(
    key: str,
    greater_keys: Iterable[str],
    less_keys: Iterable[str],
    less_endings: Iterable[str] = (),
) -> str:
    """Return the rule for scores of a name: ``"greater"`` or ``"less"`` is better.

    In order: the whole name is among ``greater_keys``, or ``less_keys``; the name ends in one of
    ``less_endings`` and holds no greater key beyond mmcv's; the name holds a greater key, or a less
    key. Case is ignored.

    Raises:
        ValueError: if no rule fits.

    >>> infer_rule("coco/bbox_mAP_50", ["mAP"], ["loss"]), infer_rule("val_loss", ["acc"], ["loss"])
    ('greater', 'less')
    >>> [infer_rule("top1_error", ["top"], [], endings) for endings in ([], ["error"])]
    ['greater', 'less']
    """
    name = key.lower()
    keys = {"greater": [*map(str.lower, greater_keys)], "less": [*map(str.lower, less_keys)]}
    for rule, names_of_rule in keys.items():
        if name in names_of_rule:
            return rule
    own = [part for part in keys["greater"] if part not in map(str.lower, GREATER)]
    metric = re.sub(r"(_step|_epoch)?(/dataloader_idx_\d+)?$", "", name)  # what Lightning adds
    if metric.endswith(tuple(less_endings)) and not any(part in name for part in own):
        return "less"
    for rule, names_of_rule in keys.items():
        if any(part in name for part in names_of_rule):
            return rule
    raise ValueError(
        f"Cannot infer the rule for key {key} of save_best, which neither greater_keys nor "
        "less_keys have, thus a specific rule must be specified: rule='greater' or rule='less'"
    )


def best_name(key: str, unit: str, done: int) -> str:
    """Return the file name of a best checkpoint by ``key``.

    Note:
        Departure from mmcv: a key with a slash makes a name, not a directory.

    >>> best_name("coco/mAP", "epoch", 3)
    'best_coco_mAP_epoch_3.pth'
    """
    return f"best_{as_name(key)}_{unit}_{done}.pth"


def number(score: Any) -> float | int | None:
    """Return a score as a number; None stays None.

    Raises:
        TypeError: for another type than a number, or a tensor or array with a single number.
    """
    if hasattr(score, "item") and getattr(score, "size", None) is not None:
        try:
            score = score.item()  # a tensor's or numpy's
        except (RuntimeError, ValueError):
            raise TypeError(f"a score must be one number, got {score!r}") from None
    if score is None or isinstance(score, (int, float)):
        return score
    raise TypeError(f"a score must be a number, got {score!r}")


def ranked(
    ranking: Sequence[list[Any]], score: float, path: str, better: Callable[[Any, Any], bool]
) -> list[list[Any]]:
    """Insert a score into a ranking of ``[score, path]``, best first; return the new ranking.

    On ties the older entry stays first. A better entry replaces an entry of the same path.

    >>> import operator
    >>> ranked([[0.9, "a"], [0.7, "b"]], 0.7, "c", operator.gt)
    [[0.9, 'a'], [0.7, 'b'], [0.7, 'c']]
    """
    place = next((i for i, (s, _) in enumerate(ranking) if better(score, s)), len(ranking))
    before, after = [*ranking[:place]], [*ranking[place:]]
    if any(p == path for _, p in before):
        return [*ranking]  # the path has a score at least as good
    return [*before, [score, path], *(e for e in after if e[1] != path)]


def key_list(save_best: Any) -> list[str]:
    """Return the list of keys of a ``save_best``.

    Raises:
        TypeError: for another type than a string, a list of strings or None.
        ValueError: if two keys make the same file name, or ``"auto"`` is one of several keys.
    """
    if save_best is None:
        return []
    keys = list(names("save_best", save_best, ()))
    if not keys or len({best_name(key, "", 0) for key in keys}) < len(keys):
        raise ValueError(f"save_best must have keys that make different names, got {save_best!r}")
    if "auto" in keys and len(keys) > 1:
        raise ValueError(f"save_best='auto' stands alone, got {save_best!r}")
    return keys


def names(argument: str, given: Any, default: Sequence[str]) -> Sequence[str]:
    """Return a string, or a list of strings, as a sequence; the default for None.

    Raises:
        TypeError: for another type.
    """
    if given is None:
        return default
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, (list, tuple)) or not all(isinstance(x, str) for x in found):
        raise TypeError(f"{argument} must be a str, a list of str or None, got {given!r}")
    return found
