"""Which score is better, and what the file of the best is called, by mmcv's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lightning_hooks.files import as_name

__all__ = ["best_name", "infer_rule", "key_list", "names", "number", "ranked"]


def infer_rule(key: str, greater_keys: Iterable[str], less_keys: Iterable[str]) -> str:
    """Return ``"greater"`` or ``"less"``: which scores of this name are better.

    The name is looked for in ``greater_keys``, then in ``less_keys``; then any of
    ``greater_keys`` in the name, then any of ``less_keys``; upper and lower case are the same.

    Raises:
        ValueError: if nothing is found.

    >>> infer_rule("coco/bbox_mAP_50", ["mAP"], ["loss"]), infer_rule("val_loss", ["acc"], ["loss"])
    ('greater', 'less')
    """
    name = key.lower()
    greater, less = [k.lower() for k in greater_keys], [k.lower() for k in less_keys]
    if name in greater:
        return "greater"
    if name in less:
        return "less"
    if any(k in name for k in greater):
        return "greater"
    if any(k in name for k in less):
        return "less"
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
    """Return a ranking of ``[score, path]``, best first, with one more in it.

    It comes after those that it is not better than; an older entry of the same path goes.

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
