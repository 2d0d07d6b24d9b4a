"""By which scores, and by which rule, a checkpoint is the best."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

from lightning_hooks.arguments import check_int
from lightning_hooks.hooks.best_score import infer_rule, key_list, names
from lightning_hooks.suggest import UnknownNameError

__all__ = ["BestRules"]


class BestRules:
    """mmcv's arguments and attributes for a comparison, for one key or several.

    ``rule``, ``key_indicator`` and ``compare_func`` are those of the first key. The class
    attributes may be other ones in a subclass, and ``_init_rule`` may be overridden.
    """

    rule_map: ClassVar[dict[str, Callable[[Any, Any], bool]]] = {
        "greater": operator.gt,
        "less": operator.lt,
    }
    init_value_map: ClassVar[dict[str, float]] = {"greater": -math.inf, "less": math.inf}
    _default_greater_keys: ClassVar[list[str]] = [
        *("acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc")
    ]
    _default_less_keys: ClassVar[list[str]] = ["loss"]

    save_best: str | list[str] | None = None
    keep_best: int = 1
    rule: str | None = None
    key_indicator: str = ""
    compare_func: Callable[[Any, Any], bool]

    def _compare_by(
        self, save_best: Any, rule: Any, greater_keys: Any, less_keys: Any, keep_best: Any
    ) -> None:
        """Check and take the arguments."""
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
            self._init_rule(one, key)  # the first key's last: mmcv's attributes are its
            self._take_rule()

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Set ``rule``, ``key_indicator`` and ``compare_func``.

        Raises:
            UnknownNameError: (a KeyError, as in mmcv) for an unknown rule.
            ValueError: if no rule is given and none can be inferred.
        """
        if not (rule is None or isinstance(rule, str)):
            raise TypeError(f"rule must be a str, a list of str or None, got {rule!r}")
        if rule is not None and rule not in self.rule_map:
            raise UnknownNameError(f"rule must be greater, less or None, but got {rule}.")
        if rule is None and key_indicator != "auto":
            rule = infer_rule(key_indicator, self.greater_keys, self.less_keys)
        self.rule = rule
        self.key_indicator = key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def _take_rule(self) -> None:
        if self.rule is not None and self.key_indicator != "auto":
            self._rules[self.key_indicator] = (self.compare_func, self.init_value_map[self.rule])
