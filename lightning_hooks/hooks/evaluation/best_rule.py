"""Compare scores, and name the file of the best, by mmcv's rules."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from lightning_hooks.storage.file_names import as_name
from lightning_hooks.utils.arguments import check_int
from lightning_hooks.utils.suggestions import UnknownNameError

__all__ = ["BestRules", "best_name", "infer_rule", "key_list", "names", "number", "ranked"]

GREATER = ["acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc"]
LESS = ["loss"]
LESS_ENDINGS = ("loss", "error", "mse", "mae", "rmse", "perplexity")


class BestRules:
    """Hold mmcv's arguments and attributes of a comparison, for one key or several.

    ``rule``, ``key_indicator`` and ``compare_func`` are those of the first key. A subclass may
    set other class attributes, and override ``_init_rule``.
    """

    rule_map: ClassVar[dict[str, Callable[[Any, Any], bool]]] = {
        "greater": operator.gt,
        "less": operator.lt,
    }
    init_value_map: ClassVar[dict[str, float]] = {"greater": -math.inf, "less": math.inf}
    _default_greater_keys: ClassVar[list[str]] = GREATER
    _default_less_keys: ClassVar[list[str]] = LESS
    less_endings: tuple[str, ...] = LESS_ENDINGS
    """Ends of names whose scores are better when less; mmcv has none."""

    save_best: str | list[str] | None = None
    keep_best: int = 1
    rule: str | None = None
    key_indicator: str = ""
    compare_func: Callable[[Any, Any], bool]

    def _init_comparison(
        self, save_best: Any, rule: Any, greater_keys: Any, less_keys: Any, keep_best: Any
    ) -> None:
        """Check and set the arguments."""
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
        for key, one in reversed(list(zip(keys, rules, strict=True))):
            self._init_rule(one, key)  # the first key comes last: mmcv's attributes are its
            self._add_rule()

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Set ``rule``, ``key_indicator`` and ``compare_func``.

        Raises:
            UnknownNameError: (a KeyError, as in mmcv) for an unknown rule.
            ValueError: if no rule is given and none can be inferred.
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


def infer_rule(
    key: str,
    greater_keys: Iterable[str],
    less_keys: Iterable[str],
    less_endings: Iterable[str] = (),
) -> str:
    """Return which scores of this name are better: ``"greater"`` or ``"less"``.

    ``greater_keys``, then ``less_keys`` are searched for the whole name; then the name for any of
    ``greater_keys``, then of ``less_keys``. Upper and lower case are the same. A name with one of
    ``less_endings`` is less, unless a key that is not among mmcv's finds it greater.

    Raises:
        ValueError: if nothing is found.

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
    """Return the name of the file of the best by ``key``.

    Note:
        Departure from mmcv: a key with a slash makes a name, not a directory.

    >>> best_name("coco/mAP", "epoch", 3)
    'best_coco_mAP_epoch_3.pth'
    """
    return f"best_{as_name(key)}_{unit}_{done}.pth"


def number(score: Any) -> float | int | None:
    """Return a score as a number; None stays None.

    Raises:
        TypeError: if it is neither a number nor a tensor or array of one.
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
    """Return a ranking of ``[score, path]``, best first, with one more entry.

    It comes after those that it is not better than, and replaces one of the same path.

    >>> import operator
    >>> ranked([[0.9, "a"], [0.7, "b"]], 0.7, "c", operator.gt)
    [[0.9, 'a'], [0.7, 'b'], [0.7, 'c']]
    """
    place = next((i for i, (s, _) in enumerate(ranking) if better(score, s)), len(ranking))
    before, after = [*ranking[:place]], [*ranking[place:]]
    if any(p == path for _, p in before):
        return [*ranking]  # no better than what the file has
    return [*before, [score, path], *(e for e in after if e[1] != path)]


def key_list(save_best: Any) -> list[str]:
    """Return the keys of a ``save_best``: none for None, one for a string.

    Raises:
        TypeError: if it is not a string, a list of them or None.
        ValueError: if two keys make the same file name, or ``"auto"`` is one of several.
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
    """Return an argument that is a string, a list of them, or None for the default.

    Raises:
        TypeError: if it is something else.
    """
    if given is None:
        return default
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, (list, tuple)) or not all(isinstance(x, str) for x in found):
        raise TypeError(f"{argument} must be a str, a list of str or None, got {given!r}")
    return found
