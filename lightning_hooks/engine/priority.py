"""mmcv's hook priorities by name, and the default of each family of hooks."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "FAMILIES",
    "Priority",
    "default_priority",
    "get_priority",
    "is_family",
    "loggers_of",
    "of_family",
    "priority_name",
]


class Priority(Enum):
    """mmcv's named priorities: a lower value is called earlier."""

    HIGHEST = 0
    VERY_HIGH = 10
    HIGH = 30
    ABOVE_NORMAL = 40
    NORMAL = 50
    BELOW_NORMAL = 60
    LOW = 70
    VERY_LOW = 90
    LOWEST = 100


FAMILIES: dict[str, Priority] = {
    "LrUpdaterHook": Priority.VERY_HIGH,
    "MomentumUpdaterHook": Priority.HIGH,
    "OptimizerHook": Priority.ABOVE_NORMAL,
    "CheckpointHook": Priority.NORMAL,
    "IterTimerHook": Priority.LOW,
    "EvalHook": Priority.LOW,
    "LoggerHook": Priority.VERY_LOW,
}
"""The priority of each family in mmcv, by the name of the base class."""


def get_priority(priority: int | str | Priority) -> int:
    """Return the value of a priority, given as a name in any case, a value or an enum member.

    Raises:
        UnknownNameError: if the name is unknown.
        ValueError: if the value is outside 0..100.
        TypeError: for any other type.

    >>> get_priority("very_high"), get_priority(49), get_priority(Priority.LOW)
    (10, 49, 70)
    """
    if isinstance(priority, Enum):  # ours, or mmcv's own Priority
        priority = priority.value
    if isinstance(priority, str):
        if priority.upper() not in Priority.__members__:
            raise UnknownNameError(
                f"unknown priority {shown(priority)}; "
                f"{suggest(priority.upper(), Priority.__members__)}"
            )
        return Priority[priority.upper()].value
    if isinstance(priority, int) and not isinstance(priority, bool):
        if not 0 <= priority <= 100:
            raise ValueError(f"priority must be between 0 and 100, got {shown(priority)}")
        return priority
    raise TypeError(
        f"priority must be a name, an int in 0..100 or a Priority, got {shown(priority)}"
    )


def priority_name(value: int) -> str | int:
    """Return the name of a priority value, else the value.

    >>> priority_name(10), priority_name(49)
    ('VERY_HIGH', 49)
    """
    try:
        return Priority(value).name
    except ValueError:
        return value


def is_family(hook: object, *names: str) -> bool:
    """Whether a hook's class or a base class has one of the names, in mmcv or here."""
    return not {base.__name__ for base in type(hook).__mro__}.isdisjoint(names)


def of_family(hooks: Iterable[Any], *names: str) -> list[Any]:
    """Return the hooks, among some hooks, of the families with the names."""
    return [hook for hook in hooks if is_family(hook, *names)]


def loggers_of(hooks: Iterable[Any]) -> list[Any]:
    """Return the logger hooks among some hooks, those of mmcv too."""
    return of_family(hooks, "LoggerHook")


def default_priority(hook: object) -> int:
    """Return a hook's own priority, else the family's priority, else NORMAL.

    The family is found by the names of the base classes, equal in mmcv and in this package.
    """
    own = getattr(hook, "priority", None)
    if isinstance(own, (int, str, Priority)):
        return get_priority(own)
    for base in type(hook).__mro__:
        if base.__name__ in FAMILIES:
            return FAMILIES[base.__name__].value
    return Priority.NORMAL.value
