"""The hooks of a run in mmcv's order, and who is called at which point."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from lightning_hooks.points import GENERIC, STAGES
from lightning_hooks.priority import get_priority, priority_name

__all__ = ["HookList", "hook_info", "method_at", "triggered_stages"]


class HookList(list[Any]):
    """A list that old hooks may rewrite: the driver sees that it has changed.

    ``version`` grows with every change.
    """

    version = 0

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self.version += 1

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(index)
        self.version += 1

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Insert before ``index``."""
        super().insert(index, value)
        self.version += 1

    def append(self, value: Any) -> None:
        """Add at the end, whatever the priority."""
        self.insert(len(self), value)

    def extend(self, values: Iterable[Any]) -> None:
        """Add several at the end."""
        for value in values:
            self.append(value)

    def remove(self, value: Any) -> None:
        """Remove the first equal hook."""
        super().remove(value)
        self.version += 1

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove and return a hook."""
        self.version += 1
        return super().pop(index)

    def add(self, hook: Any, priority: int | str) -> None:
        """Insert by priority, after those of equal priority, as mmcv does."""
        value = get_priority(priority)
        hook.priority = value
        index = len(self)
        while index and getattr(self[index - 1], "priority", 50) > value:
            index -= 1
        self.insert(index, hook)


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
            found = any(name in vars(hook) for name in names)
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
            return method  # type: ignore[no-any-return]
    return None


def hook_info(hooks: Iterable[Any]) -> str:
    """mmcv's table of stages, priorities and classes."""
    rows: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for hook in hooks:
        row = f"({priority_name(hook.priority):<12}) {type(hook).__name__:<35}"
        for stage in triggered_stages(hook):
            rows[stage].append(row)
    return "\n".join(
        "\n".join([f"{stage}:", *found, " -------------------- "])
        for stage, found in rows.items()
        if found
    )
