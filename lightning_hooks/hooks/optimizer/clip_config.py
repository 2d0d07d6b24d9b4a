"""Check and read ``grad_clip``: a recipe for all gradients, or for each parameter group."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch

from lightning_hooks.hooks.optimizer.clipping import KINDS
from lightning_hooks.hooks.updaters.param_groups import describe_groups
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "GradClip",
    "Recipe",
    "check_grad_clip",
    "is_mmcv_recipe",
    "is_recipe",
    "recipes_for",
    "recipes_in",
]

Recipe = Mapping[str, Any]
"""``type``, a key of ``KINDS`` in ``hooks/optimizer/clipping.py``, and that kind's arguments."""

GradClip = Recipe | Sequence[Recipe | None]
"""A recipe, a list of recipes (or None) by parameter group, or a dict of either by optimizer."""


def is_recipe(given: Any) -> TypeGuard[Recipe]:
    """Whether a ``grad_clip`` is a single recipe, for all gradients of a step together.

    >>> is_recipe({"max_norm": 1}), is_recipe([{"max_norm": 1}]), is_recipe({"sgd": {}})
    (True, False, False)
    """
    return isinstance(given, Mapping) and not _by_name(given)


def is_mmcv_recipe(given: Any) -> bool:
    """Whether a ``grad_clip`` is mmcv's: a recipe by norm without a ``type``."""
    return is_recipe(given) and "type" not in given


def recipes_in(grad_clip: Any) -> list[Recipe]:
    """Return all recipes in a ``grad_clip`` of any form.

    >>> recipes_in({"sgd": [{"max_norm": 1}, None], "adam": {"max_norm": 2}})
    [{'max_norm': 1}, {'max_norm': 2}]
    """
    if is_recipe(grad_clip):
        return [grad_clip]
    return [recipe for one in _parts(grad_clip) for recipe in recipes_in(one)]


def recipes_for(
    grad_clip: Any, name: str, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[list[torch.Tensor], Recipe]]:
    """Yield each group of an optimizer's parameters to clip together, with the recipe.

    Args:
        grad_clip: Any form.
        name: The optimizer's name, where there are several.
        optimizer: The optimizer.

    Raises:
        ValueError: for an optimizer without an entry, or a list of another length than the
            optimizer's groups.
    """
    if not is_recipe(grad_clip) and isinstance(grad_clip, Mapping):
        if name not in grad_clip:
            raise ValueError(
                f"grad_clip has no entry for {describe_groups(name, optimizer)}, "
                f"only for {list(grad_clip)}; None leaves its gradients as they are"
            )
        grad_clip = grad_clip[name]
    groups = [group["params"] for group in optimizer.param_groups]
    if grad_clip is None:
        return
    if is_recipe(grad_clip):
        yield [parameter for group in groups for parameter in group], grad_clip
        return
    if len(grad_clip) != len(groups):
        raise ValueError(
            f"grad_clip has {len(grad_clip)} recipes, one (or None) is needed for each of "
            f"{describe_groups(name, optimizer)}"
        )
    for group, recipe in zip(groups, grad_clip, strict=True):
        if recipe is not None:
            yield group, recipe


def check_grad_clip(grad_clip: Any) -> None:
    """Raise unless ``grad_clip`` has a known form.

    Raises:
        TypeError: for anything but a dict or a list of dicts.
        ValueError: for an unknown type or key, or a number out of range.
    """
    if _is_list(grad_clip) or (isinstance(grad_clip, Mapping) and _by_name(grad_clip)):
        parts = _parts(grad_clip)
        if not parts:
            raise ValueError(f"grad_clip={grad_clip!r} clips nothing: give None")
        for one in parts:
            check_grad_clip(one)
        types = {float(recipe.get("norm_type", 2.0)) for recipe in recipes_in(grad_clip)}
        if len(types) > 1:
            raise ValueError(f"grad_clip must have one norm_type for all, got {sorted(types)}")
    elif isinstance(grad_clip, Mapping):
        _check_recipe(grad_clip)
    else:
        hint = f"; write dict(max_norm={grad_clip})" if isinstance(grad_clip, (int, float)) else ""
        raise TypeError(
            "grad_clip must be a dict, a list of dicts (one for each parameter group) or None, "
            f"got {grad_clip!r}{hint}"
        )


def _check_recipe(recipe: Recipe) -> None:
    kind = recipe.get("type", "norm")
    if kind not in KINDS:
        raise ValueError(f"grad_clip has the unknown type {kind!r}: {suggest(str(kind), KINDS)}")
    known = list(inspect.signature(KINDS[kind]).parameters.values())[1:]
    names = [parameter.name for parameter in known]
    unknown = [key for key in recipe if key not in (*names, "type")]
    if unknown:
        raise ValueError(f"grad_clip has unknown keys {unknown}; known: {names}")
    for parameter in known:
        name, needed = parameter.name, parameter.default is parameter.empty
        number = needed or isinstance(parameter.default, float)
        if number and (needed or name in recipe) and not _is_positive(recipe.get(name)):
            raise ValueError(f"grad_clip needs a positive {name}, got {dict(recipe)}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _parts(given: Any) -> list[Any]:
    """Return the entries of a list, or of a dict by name, without None."""
    values = given.values() if isinstance(given, Mapping) else given
    return [value for value in values if value is not None]


def _by_name(given: Mapping[str, Any]) -> bool:
    values = _parts(given)
    return bool(values) and all(isinstance(value, Mapping) or _is_list(value) for value in values)


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)
