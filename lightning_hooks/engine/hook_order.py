"""The order of hooks by ``run_before`` and ``run_after``, on top of priorities.

Both are attributes of a hook or keys of a config, and hold a hook class, a name, or a list of
classes and names. Subclasses match too; a hook absent from the run is ignored. The hook with the
attribute moves just before the first named hook, or just after the last named hook, unless the
priority gives a correct place already.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Sequence
from typing import Any

from lightning.pytorch import callbacks as lightnings
from lightning.pytorch.callbacks import Callback, Checkpoint

from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.hosted import class_name, foreign
from lightning_hooks.engine.registry import HOOKS, ORDER_KEYS
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["are_ordered", "arranged", "check_order"]


def are_ordered(hooks: Iterable[Any]) -> bool:
    """Whether a hook has a ``run_before`` or ``run_after``."""
    own = [foreign(hook) for hook in hooks]
    return any(getattr(hook, key, ()) != () for hook in own for key in ORDER_KEYS)


def arranged(hooks: Sequence[Any]) -> list[Any]:
    """Return hooks in the order by ``run_before`` and ``run_after``.

    Args:
        hooks: The hooks in the order of priorities.

    Raises:
        TypeError: for a ``run_before`` or ``run_after`` that is not a class, a name or a list.
        ValueError: for contradictory ``run_before`` and ``run_after``.

    >>> class First: pass
    >>> class Second: run_before = First
    >>> [type(hook).__name__ for hook in arranged([First(), Second()])]
    ['Second', 'First']
    """
    own = [foreign(hook) for hook in hooks]
    before, after = ([_targets(hook, key, own) for hook in own] for key in ORDER_KEYS)
    earlier: dict[int, set[int]] = {i: set(after[i]) for i in range(len(hooks))}
    for i, targets in enumerate(before):
        for target in targets:
            earlier[target].add(i)
    try:
        graphlib.TopologicalSorter(earlier).prepare()
    except graphlib.CycleError as error:
        circle = " before ".join(class_name(hooks[i]) for i in error.args[1])
        raise ValueError(f"run_before and run_after of hooks go in a circle: {circle}") from None
    places: dict[int, int] = {}

    def place(i: int) -> int:
        """Return a hook's index by the priority and the named hooks."""
        if i not in places:
            places[i] = i  # the end of a recursion: two hooks may name each other
            first = min([i, *map(place, before[i])])
            # if two hooks name each other, the earlier hook moves
            places[i] = max([first, *(place(j) for j in after[i] if i not in before[j])])
        return places[i]

    order, left = [], {*range(len(hooks))}
    while left:
        ready = [i for i in left if not earlier[i] & left]
        _, i = min(zip(map(place, ready), ready, strict=True))
        left.remove(i)
        order.append(hooks[i])
    return order


def check_order(hooks: Sequence[Any], callbacks: Sequence[Callback]) -> None:
    """Check the ``run_before`` and ``run_after`` of all hooks of a Trainer.

    Args:
        hooks: The hooks.
        callbacks: The Trainer's callbacks; hooks may name callbacks of Lightning too.

    Raises:
        UnknownNameError: for the name of no hook and no callback, with the closest name.
        ValueError: if a callback of Lightning is on the wrong side of the hooks.
    """
    if not are_ordered(hooks):
        return
    hooks = [foreign(hook) for hook in hooks]
    named = [(hook, key, _named(hook, key)) for hook in hooks for key in ORDER_KEYS]
    others = [(i, c) for i, c in enumerate(callbacks) if not isinstance(c, HookCallback)]
    first = next((i for i, c in enumerate(callbacks) if isinstance(c, HookCallback)), 0)
    present = {name for hook in [*hooks, *dict(others).values()] for name in _names(hook)}
    for hook, key, targets in named:
        attribute = f"{class_name(hook)}.{key}"
        for name in targets:
            if isinstance(name, str) and name not in present and name not in _all_names():
                close = suggest(name, present | _all_names())
                raise UnknownNameError(
                    f"{attribute} names {name!r}, and no hook has that name; {close}"
                )
        for index, callback in others:
            is_named = any(_is(callback, target) for target in targets)
            if is_named and (index < first) == (key == "run_before"):
                raise ValueError(_wrong_side(attribute, key, callback))


def _named(hook: Any, key: str) -> list[Any]:
    """Return the classes and names in a hook's ``run_before`` or ``run_after``."""
    value = getattr(hook, key, ())
    if callable(value) and not isinstance(value, type):  # a method of an old hook, by coincidence
        return []
    targets = list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(target, (str, type)) for target in targets):
        raise TypeError(
            f"{class_name(hook)}.{key} must be a hook's class or name, or a list of them, "
            f"got {shown(value)}"
        )
    return targets


def _names(hook: Any) -> set[str]:
    return {base.__name__ for base in type(hook).__mro__[:-1]}  # without object


def _all_names() -> set[str]:
    registered = {base.__name__ for cls in HOOKS.module_dict.values() for base in cls.__mro__[:-1]}
    return registered.union(lightnings.__all__)


def _is(hook: Any, name: str | type) -> bool:
    if isinstance(name, str):
        return name in _names(hook)
    return isinstance(hook, name)


def _targets(hook: Any, key: str, hooks: Sequence[Any]) -> list[int]:
    """Return the indices of the hooks named by a hook."""
    named = _named(hook, key)
    return [
        i
        for i, other in enumerate(hooks)
        if other is not hook and any(_is(other, name) for name in named)
    ]


def _wrong_side(attribute: str, key: str, callback: Callback) -> str:
    other = type(callback).__name__
    if isinstance(callback, Checkpoint):
        return (
            f"{attribute} names {other}, which Lightning calls after all hooks: only run_before "
            "can name it; CheckpointHook is a hook, and may be named by both"
        )
    side = "behind" if key == "run_before" else "in front of"
    return f"{attribute} names {other}: put it {side} the hooks in Trainer(callbacks=[...])"
