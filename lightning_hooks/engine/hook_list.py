"""The hooks of a run in mmcv's order, and who is called at which point."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hook_order import WISHES, arranged, wished
from lightning_hooks.engine.points import GENERIC, STAGES
from lightning_hooks.engine.priority import default_priority, get_priority, priority_name
from lightning_hooks.utils.arguments import check_object

__all__ = ["HookList", "hook_info", "method_at", "triggered_stages"]

Watcher = Callable[[Any, Callable[..., None]], Callable[..., None]]
"""Takes a hook and its method, returns what is called in its place."""


class HookList(list[Any]):
    """A list of hooks by priority that old hooks may rewrite: whoever runs it sees the change.

    ``on_change`` is called after every change.
    """

    on_change: Callable[[], None] | None = None
    _watchers: tuple[Watcher, ...] = ()

    def __init__(self, hooks: Iterable[Any] = ()) -> None:
        super().__init__(hooks)
        self._priorities: dict[int, int] = {}

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def method_at(self, hook: Any, point: str) -> Callable[..., None] | None:
        """What is called of a hook at a point: its method, with whoever watches around it."""
        method = method_at(hook, point)
        if method is not None:
            for around in self._watchers:
                method = around(hook, method)
        return method

    def watch(self, around: Watcher) -> None:
        """Let ``around(hook, method)`` be called in the place of every hook's method."""
        self._watchers = (*self._watchers, around)
        self._changed()

    def unwatch(self, around: Watcher) -> None:
        """Call the methods themselves again."""
        self._watchers = tuple(one for one in self._watchers if one != around)
        self._changed()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (list(self), [self.priority_of(hook) for hook in self])

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self._changed()

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(index)
        self._changed()

    def __iadd__(self, values: Iterable[Any]) -> HookList:  # type: ignore[misc]
        self.extend(values)
        return self

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Insert before ``index``."""
        super().insert(index, value)
        self._changed()

    def append(self, value: Any) -> None:
        """Add at the end, whatever the priority."""
        self.insert(len(self), value)

    def extend(self, values: Iterable[Any]) -> None:
        """Add several at the end."""
        for value in list(values):
            self.append(value)

    def remove(self, value: Any) -> None:
        """Remove the first equal hook."""
        super().remove(value)
        self._changed()

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove and return a hook."""
        hook = super().pop(index)
        self._changed()
        return hook

    def clear(self) -> None:
        """Remove all."""
        super().clear()
        self._changed()

    def sort(self, **kwargs: Any) -> None:
        """Sort as a list does."""
        super().sort(**kwargs)
        self._changed()

    def reverse(self) -> None:
        """Turn the order round."""
        super().reverse()
        self._changed()

    def priority_of(self, hook: Any) -> int:
        """The priority at which a hook was added, else its default."""
        return self._priorities.get(id(hook), default_priority(hook))

    def add(self, hook: Any, priority: int | str) -> None:
        """Insert by priority, after those of equal priority, as mmcv does.

        Then those move that wish to run before or after others.

        Raises:
            TypeError: if it is a class.
            ValueError: if wishes contradict each other.
        """
        check_object(hook)
        value = get_priority(priority)
        self._priorities[id(hook)] = value
        with contextlib.suppress(AttributeError, TypeError):  # __slots__, or a property
            hook.priority = value  # where mmcv's hooks have it
        index = len(self)
        while index and self.priority_of(self[index - 1]) > value:
            index -= 1
        self.insert(index, hook)
        order = arranged(sorted(self, key=self.priority_of)) if self._wishes() else self
        if any(one is not other for one, other in zip(order, self, strict=True)):
            self[:] = order

    def _wishes(self) -> bool:
        return any(wished(hook, wish) for hook in self for wish in WISHES)


def _restore(hooks: list[Any], priorities: list[int]) -> HookList:
    restored = HookList()
    for hook, priority in zip(hooks, priorities, strict=True):
        restored.append(hook)
        restored._priorities[id(hook)] = priority
    return restored


def triggered_stages(hook: Any) -> list[str]:
    """The points at which a hook does something, in mmcv's order.

    mmcv's classes and ours know it themselves (``get_triggered_stages``); of any other object it
    is the methods that it has. A generic method stands for its two specific ones.
    """
    own = getattr(hook, "get_triggered_stages", None)
    stages = set(own()) if callable(own) else set()
    for stage in STAGES:
        names = [stage, GENERIC.get(stage, stage)]
        if callable(own):
            # overridden on the instance, which a look at the class does not show
            found = any(name in getattr(hook, "__dict__", {}) for name in names)
        else:
            found = any(callable(getattr(hook, name, None)) for name in names)
        if found:
            stages.add(stage)
    return [stage for stage in STAGES if stage in stages]


def method_at(hook: Any, point: str) -> Callable[..., None] | None:
    """The method that a hook has for a point, or None where it does nothing.

    Points beyond the ten (``before_epoch``, a trainer's own) are looked up by name.
    """
    if point in STAGES and point not in triggered_stages(hook):
        return None
    for name in (point, GENERIC.get(point, point)):
        method = getattr(hook, name, None)
        if callable(method):
            generic = _generic(method)
            return method if generic is None else getattr(hook, generic)  # type: ignore[no-any-return]
    return None


def _generic(method: Any) -> str | None:
    """The generic method that one of ``Hook``'s own only calls: there is no need to go through it.

    What is wrapped around such a method has its attributes, and is no such method.
    """
    name = None if hasattr(method, "__wrapped__") else getattr(method, "only_calls", None)
    return name if isinstance(name, str) else None


def hook_info(hooks: HookList) -> str:
    """mmcv's table of stages, priorities and classes."""
    rows: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for hook in hooks:
        row = f"({priority_name(hooks.priority_of(hook)):<12}) {class_name(hook):<35}"
        for stage in triggered_stages(hook):
            rows[stage].append(row)
    return "\n".join(
        "\n".join([f"{stage}:", *found, " -------------------- "])
        for stage, found in rows.items()
        if found
    )
