"""Rank scores by mmcv's rules: ``Ranking``."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.hooks.saving.lightning_view import BestFields
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.file_names import as_name
from lightning_hooks.storage.manifest import ChooseOld
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError

__all__ = [
    "RULES",
    "Ranking",
    "Rule",
    "best_name",
    "checked_rule",
    "infer_rule",
    "is_due",
    "key_list",
    "names",
    "number",
]

GREATER = ["acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc"]
LESS = ["loss"]
LESS_ENDINGS = ("loss", "error", "mse", "mae", "rmse", "perplexity")

Rule = tuple[Callable[[Any, Any], bool], float]
"""Whether a score is better than another, and the worst possible score."""

RULES: dict[str, Rule] = {"greater": (operator.gt, -math.inf), "less": (operator.lt, math.inf)}


class Ranking:
    """The best scores by one or several keys, with the paths of the checkpoints.

    Scores and paths are kept in ``runner.meta["hook_msgs"]``, the ``messages`` of the methods, and
    so in every checkpoint. The keys are those of ``BestCheckpointHook``.

    Args:
        keep: The number of checkpoints to keep by each key.
    """

    is_first: bool = True
    """Whether the ranking is the first of the run."""
    current: float | None = None
    """The latest score among the best by the first key."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.rules: dict[str, Rule] = {}

    @property
    def key(self) -> str:
        """The first key, or ``"auto"`` before the first score."""
        return next(iter(self.rules), "auto")

    def rule(self, key: str) -> str:
        """Return which scores of a key are better, ``"greater"`` or ``"less"``."""
        return "greater" if self.rules[key][1] < 0 else "less"

    def suffix(self, key: str) -> str:
        """Return the suffix of mmcv's names in ``messages``: empty for the first key of all."""
        return "" if self.is_first and key == self.key else f"_{key}"

    def ranked(self, messages: Mapping[str, Any], key: str) -> list[list[Any]]:
        """Return ``[score, path]`` by a key, best first; at most one in a run of mmcv's."""
        if "best_ckpts" in messages or "best_score" not in messages or self.suffix(key):
            kept = messages.get("best_ckpts", {}).get(key, [])  # perhaps by another rule
            is_greater = self.rule(key) == "greater"
            return sorted(kept, key=operator.itemgetter(0), reverse=is_greater)[: self.keep]
        return [[messages["best_score"], messages.get("best_ckpt") or ""]]

    def insert(self, messages: dict[str, Any], key: str, value: Any, path: str) -> bool:
        """Insert a score; return whether the score is among the best.

        Raises:
            TypeError: for a value that is no number.
        """
        score, (better, worst) = number(value, key), self.rules[key]
        if score is None or not better(score, worst):  # NaN is never better
            return False
        before = self.ranked(messages, key)
        ranked = _ranked(before, score, path, better)[: self.keep]
        if ranked == before or [score, path] not in ranked:
            return False
        self._put(messages, key, ranked)
        if key == self.key:
            self.current = score
        return True

    def begin(self, messages: dict[str, Any]) -> None:
        """Go on from a file whose run may have had other keys or rules, or have kept more files."""
        for key in self.rules if "best_ckpts" in messages else ():
            self._put(messages, key, self.ranked(messages, key))

    def _put(self, messages: dict[str, Any], key: str, ranked: list[list[Any]]) -> None:
        """Keep the best by a key, and show the first by mmcv's names."""
        messages["best_ckpts"] = {**messages.get("best_ckpts", {}), key: ranked}
        names = [f"{name}{self.suffix(key)}" for name in ("best_score", "best_ckpt")]
        for name in names:
            messages.pop(name, None)
        messages.update(zip(names, *ranked[:1], strict=True) if ranked else ())

    def choose_old(self, messages: Mapping[str, Any], key: str, new: str = "") -> ChooseOld:
        """Return a function that chooses, of the listed files of a key, those to delete.

        A file goes if it is not among the best now, and no better than the worst of the best. A
        run resumed from an earlier file keeps the better files of its former continuation.

        Args:
            messages: The ranking.
            key: The key.
            new: The name of the file being written; nothing is deleted before the file exists.
        """
        ranked, better = self.ranked(messages, key), self.rules[key][0]
        kept = {os.path.basename(path) for _, path in ranked}

        def choose(existing: list[Entry]) -> list[Entry]:
            if not ranked or (new and all(entry.name != new for entry in existing)):
                return []
            old = [entry for entry in existing if entry.name not in kept]
            return [entry for entry in old if not better(entry.score, ranked[-1][0])]

        return choose

    def fields(self, messages: Mapping[str, Any]) -> BestFields:
        """Return the attributes of a ``ModelCheckpoint``, by the first key."""
        if not self.rules:  # before the first score by "auto"
            return BestFields(save_top_k=self.keep)
        mode = "max" if self.rule(self.key) == "greater" else "min"
        current = None if self.current is None else torch.tensor(float(self.current))
        ranked = self.ranked(messages, self.key)
        kept = {path: torch.tensor(float(score)) for score, path in ranked if path}
        return BestFields(self.key, mode, self.keep, current, kept)


def checked_rule(
    rule: Any,
    key: str,
    greater_keys: Iterable[str],
    less_keys: Iterable[str],
    less_endings: Iterable[str],
) -> str | None:
    """Return a given rule, or the rule inferred from the key; None for the key ``"auto"``.

    Raises:
        TypeError: for a rule of another type than a string.
        UnknownNameError: (a KeyError, as in mmcv) for an unknown rule.
        ValueError: if no rule is given or inferred.
    """
    if not (rule is None or isinstance(rule, str)):
        raise TypeError(f"rule must be a str, a list of str or None, got {shown(rule)}")
    if rule is not None and rule not in RULES:
        write = {"min": " Write less.", "max": " Write greater."}.get(rule, "")
        raise UnknownNameError(f"rule must be greater, less or None, but got {shown(rule)}.{write}")
    if rule is None and key != "auto":
        return infer_rule(key, greater_keys, less_keys, less_endings)
    return rule


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
        "less_keys have, thus a specific rule must be specified: rule='greater' or rule='less'. If "
        "the key is misspelt, write the name in self.log(name, ...)"
    )


def best_name(key: str, unit: str, done: int) -> str:
    """Return the file name of a best checkpoint by ``key``.

    Note:
        Departure from mmcv: a key with a slash makes a name, not a directory.

    >>> best_name("coco/mAP", "epoch", 3)
    'best_coco_mAP_epoch_3.pth'
    """
    return f"best_{as_name(key)}_{unit}_{done}.pth"


def number(score: Any, key: str) -> float | int | None:
    """Return the score of a key as a number; None stays None.

    Raises:
        TypeError: for another type than a number, or a tensor or array with a single number.
    """
    if hasattr(score, "item") and getattr(score, "size", None) is not None:
        try:
            score = score.item()  # a tensor's or numpy's
        except (RuntimeError, ValueError):
            raise TypeError(
                f"the score {shown(key)} must be one number, got {shown(score)}"
            ) from None
    if score is None or isinstance(score, (int, float)):
        return score
    raise TypeError(f"the score {shown(key)} must be a number, got {shown(score)}")


def _ranked(
    ranking: Sequence[list[Any]], score: float, path: str, better: Callable[[Any, Any], bool]
) -> list[list[Any]]:
    """Insert a score into a ranking of ``[score, path]``, best first; return the new ranking.

    On ties the older entry stays first. A better entry replaces an entry of the same path.

    >>> import operator
    >>> _ranked([[0.9, "a"], [0.7, "b"]], 0.7, "c", operator.gt)
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
        raise ValueError(
            f"save_best must have keys that make different names, got {shown(save_best)}"
        )
    if "auto" in keys and len(keys) > 1:
        raise ValueError(f"save_best='auto' stands alone, got {shown(save_best)}")
    return keys


def names(argument: str, given: Any, default: Sequence[str]) -> Sequence[str]:
    """Return a string, or a list of strings, as a sequence; the default for None.

    Raises:
        TypeError: for another type.
    """
    if given is None:
        return default
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(x, str) for x in listed):
        raise TypeError(f"{argument} must be a str, a list of str or None, got {shown(given)}")
    return listed


def is_due(done: int, start: int | None, interval: int) -> bool:
    """Return whether to evaluate after ``done`` epochs or iterations.

    ``done % interval == 0``; with a start, ``done >= start and (done - start) % interval == 0``.

    >>> [n for n in range(1, 9) if is_due(n, None, 3)], [n for n in range(1, 9) if is_due(n, 2, 3)]
    ([3, 6], [2, 5, 8])
    """
    if start is None:
        return done % interval == 0
    return done >= start and (done - start) % interval == 0
