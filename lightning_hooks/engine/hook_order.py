"""What hooks say of their order beside priorities: ``run_before`` and ``run_after`` other hooks.

A hook says it by an attribute of its class or its own, a config by a key of that name. Named are
classes, or names of classes, whose subclasses are meant too; those that are not there are not
missed. Whoever names others is the one that moves: to just before the first of them, or just
after the last, unless its priority has it there already.
"""

from __future__ import annotations

import graphlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lightning.pytorch import callbacks as lightnings
from lightning.pytorch.callbacks import Callback, Checkpoint

from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.registry import HOOKS, Registry
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["WISHES", "arranged", "build_placed", "check_wishes", "wished"]

WISHES = ("run_before", "run_after")
"""The attributes of a hook, and the keys of its config."""


def arranged(hooks: Sequence[Any]) -> list[Any]:
    """Return hooks in the order that they wish for, from one by priority.

    Raises:
        TypeError: for a wish that is neither a class, a name nor several of these.
        ValueError: if wishes contradict each other.

    >>> class First: pass
    >>> class Second: run_before = First
    >>> [type(hook).__name__ for hook in arranged([First(), Second()])]
    ['Second', 'First']
    """
    before, after = ([_targets(hook, wish, hooks) for hook in hooks] for wish in WISHES)
    if not any(before) and not any(after):
        return list(hooks)
    earlier: dict[int, set[int]] = {i: set(after[i]) for i in range(len(hooks))}
    for i, targets in enumerate(before):
        for target in targets:
            earlier[target].add(i)
    _refuse_circles(earlier, hooks)
    places: dict[int, int] = {}

    def place(i: int) -> int:
        """Where a hook would be, by its priority and those that it names."""
        if i not in places:
            places[i] = i  # as seen by those that it names, if they name it too
            wanted = min([i, *map(place, before[i])])
            # where both say it, the earlier one moves
            places[i] = max([wanted, *(place(j) for j in after[i] if i not in before[j])])
        return places[i]

    order: list[Any] = []
    graph = graphlib.TopologicalSorter(earlier)
    graph.prepare()
    ready: list[tuple[int, int]] = []
    while graph.is_active():
        for i in graph.get_ready():
            heapq.heappush(ready, (place(i), i))
        _, i = heapq.heappop(ready)
        order.append(hooks[i])
        graph.done(i)
    return order


def check_wishes(hooks: Sequence[Any], callbacks: Iterable[Callback], first: int) -> None:
    """Check what the hooks of a Trainer wish for.

    Args:
        hooks: All of them.
        callbacks: The Trainer's callbacks, of which those of Lightning's kind may be named too.
        first: Which of these calls the hooks; Lightning goes by their order.

    Raises:
        UnknownNameError: for a name that no hook and no callback has, with what was meant.
        ValueError: if a callback of Lightning's is on the wrong side of the hooks.
    """
    others = [(i, one) for i, one in enumerate(callbacks) if not isinstance(one, Participant)]
    present = {name for one in [*hooks, *dict(others).values()] for name in _names(one)}
    for hook in hooks:
        for wish in WISHES:
            me = f"{class_name(hook)}.{wish}"
            for name in wished(hook, wish):
                if isinstance(name, str) and name not in (known := _all_names(present)):
                    raise UnknownNameError(
                        f"{me} names {name!r}, and no hook has that name; {suggest(name, known)}"
                    )
            for place, callback in others:
                named = any(_is(callback, name) for name in wished(hook, wish))
                if named and (place < first) == (wish == "run_before"):
                    raise ValueError(_wrong_side(me, wish, callback))


def build_placed(
    registry: Registry, config: Mapping[str, Any], priority: Any = None
) -> tuple[Any, Any]:
    """Build a hook from a config that may say where it runs; return it with its priority."""
    arguments = dict(config)
    priority = arguments.pop("priority", priority)
    wishes = {wish: arguments.pop(wish) for wish in WISHES if wish in arguments}
    hook = registry.build(arguments)
    for wish, value in wishes.items():
        setattr(hook, wish, value)
    return hook, priority


def wished(hook: Any, wish: str) -> list[Any]:
    """Return the classes and names that a hook wishes to run before, or after."""
    value = getattr(getattr(hook, "foreign_hook", hook), wish, ())
    if callable(value) and not isinstance(value, type):  # a method that an old hook calls so
        return []
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(one, (str, type)) for one in several):
        raise TypeError(
            f"{class_name(hook)}.{wish} must be a hook's class or name, or a list of them, "
            f"got {value!r}"
        )
    return several


def _names(hook: Any) -> set[str]:
    return {base.__name__ for base in type(getattr(hook, "foreign_hook", hook)).__mro__}


def _all_names(present: set[str]) -> set[str]:
    registered = {base.__name__ for cls in HOOKS.module_dict.values() for base in cls.__mro__}
    return present.union(registered, lightnings.__all__) - {"object"}


def _is(hook: Any, name: str | type) -> bool:
    if isinstance(name, str):
        return name in _names(hook)
    return isinstance(getattr(hook, "foreign_hook", hook), name)


def _targets(hook: Any, wish: str, hooks: Sequence[Any]) -> list[int]:
    names = wished(hook, wish)
    return [
        i
        for i, other in enumerate(hooks)
        if other is not hook and any(_is(other, one) for one in names)
    ]


def _refuse_circles(earlier: Mapping[int, set[int]], hooks: Sequence[Any]) -> None:
    try:
        graphlib.TopologicalSorter(earlier).prepare()
    except graphlib.CycleError as error:
        circle = " before ".join(class_name(hooks[i]) for i in error.args[1])
        raise ValueError(f"run_before and run_after of hooks go in a circle: {circle}") from None


def _wrong_side(me: str, wish: str, callback: Callback) -> str:
    other = type(callback).__name__
    if isinstance(callback, Checkpoint):
        return (
            f"{me} names {other}, which Lightning calls after all hooks: only run_before can name "
            "it; CheckpointHook is a hook, and may be named by both"
        )
    side = "behind" if wish == "run_before" else "in front of"
    return f"{me} names {other}: put it {side} the hooks in Trainer(callbacks=[...])"
