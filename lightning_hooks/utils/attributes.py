"""Descriptors for attributes of a hook that a subclass of old code may use for its own values."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

__all__ = ["alias", "weak_property"]


def alias(name: str) -> Any:
    """Return a property that reads and writes another attribute."""
    return property(attrgetter(name), lambda self, value: setattr(self, name, value))


class weak_property:  # noqa: N801  # a decorator, as property
    """A read-only property that gives way to an attribute of the same name.

    >>> class Hook:
    ...     @weak_property
    ...     def mode(self):
    ...         return "min"
    >>> hook = Hook()
    >>> hook.mode
    'min'
    >>> hook.mode = "max"
    >>> hook.mode
    'max'
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """Return the value; of a class, the descriptor."""
        return self if owner is None else self._read(owner)
