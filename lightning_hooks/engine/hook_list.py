"""``HookList``: the hooks of a run in mmcv's order, and the methods called at each point."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.hook_order import are_ordered, arranged
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.points import GENERIC, STAGES
from lightning_hooks.engine.priority import default_priority, priority_name

__all__ = ["HookList", "hook_info", "method_at"]

Watcher = Callable[[Any, Callable[..., None]], Callable[..., None]]
"""Returns the function to call in the place of a hook's method."""


class HookList(list[Any]):
    """A list of hooks by priority; old hooks may change the list during the run.

    ``on_change`` is called after every change.
    """

    on_change: Callable[[], None] | None = None
    _watchers: tuple[Watcher, ...] = ()

    def __init__(self, hooks: Iterable[Any] = (), priorities: Iterable[int] = ()) -> None:
        super().__init__(hooks)
        self._priorities = dict(zip(map(id, self), priorities, strict=False))

    def changed(self) -> None:
        """Report a change."""
        if self.on_change is not None:
            self.on_change()

    def method_at(self, hook: Any, point: str) -> Callable[..., None] | None:
        """Return a hook's method for a point, wrapped by all watchers, or None."""
        method = method_at(hook, point)
        if method is not None:
            for watcher in self._watchers:
                method = watcher(hook, method)
        return method

    def watch(self, watcher: Watcher) -> None:
        """Replace every hook's methods by ``watcher(hook, method)``."""
        self._watchers = (*self._watchers, watcher)
        self.changed()

    def unwatch(self, watcher: Watcher) -> None:
        """Undo :meth:`watch`."""
        self._watchers = tuple(known for known in self._watchers if known != watcher)
        self.changed()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), [priority for _, priority in self.entries()])

    def entries(self) -> list[tuple[Any, int]]:
        """Return the hooks with their priorities."""
        return [(hook, self.priority_of(hook)) for hook in self]

    def priority_of(self, hook: Any) -> int:
        """Return a hook's priority in the list, else the hook's default."""
        if id(hook) in self._priorities:
            return self._priorities[id(hook)]
        return default_priority(hook)

    def add(self, *entries: tuple[Any, int]) -> None:
        """Insert hooks by priority, each after the hooks of equal priority, as mmcv does.

        Then hooks move by ``run_before`` and ``run_after``.

        Args:
            entries: Pairs of hook and priority.

        Raises:
            ValueError: for contradictory ``run_before`` and ``run_after``.
        """
        for hook, priority in entries:
            self._priorities[id(hook)] = priority
            with contextlib.suppress(AttributeError, TypeError):  # __slots__, or a property
                hook.priority = priority  # the attribute in mmcv's hooks
            index = len(self)
            while index and self.priority_of(self[index - 1]) > priority:
                index -= 1
            self.insert(index, hook)
        if are_ordered(self):
            order = arranged(sorted(self, key=self.priority_of))
            if any(old is not new for old, new in zip(self, order, strict=True)):
                self[:] = order


def _noted(name: str) -> Callable[..., Any]:
    """Return a method of a list that reports the change."""
    method = getattr(list, name)

    @functools.wraps(method)
    def change(hooks: HookList, *args: Any, **kwargs: Any) -> Any:
        result = method(hooks, *args, **kwargs)
        hooks.changed()
        return result

    return change


for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "append", "clear", "extend", "insert"),
    *("pop", "remove", "reverse", "sort"),
):
    setattr(HookList, _name, _noted(_name))


def method_at(hook: Any, point: str) -> Callable[..., None] | None:
    """Return a hook's method for a point, or None without an own method.

    A generic method covers two specific points. Hooks of mmcv report which of the ten points they
    have (``get_triggered_stages``). The points of any other object, and points beyond the ten
    (``before_epoch``, a trainer's own), are looked up by name.
    """
    if isinstance(hook, HookCallback):
        return hook._method_at(point)
    names = (point, GENERIC.get(point, point))
    report = getattr(hook, "get_triggered_stages", None)
    if point in STAGES and callable(report):
        # and methods set on the instance, unknown to get_triggered_stages
        known = {*report(), *getattr(hook, "__dict__", ())}
        if known.isdisjoint(names):
            return None
    for name in names:
        method = getattr(hook, name, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
    return None


def hook_info(hooks: HookList) -> str:
    """Return mmcv's table of stages, priorities and classes."""
    tables = []
    for stage in STAGES:
        rows = [
            f"({priority_name(hooks.priority_of(hook)):<12}) {class_name(hook):<35}"
            for hook in hooks
            if method_at(hook, stage)
        ]
        tables += [f"{stage}:", *rows, " -------------------- "] if rows else []
    return "\n".join(tables)
