"""Optimizers and their parameter groups: a number for each, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lightning_hooks.utils.arguments import is_finite

__all__ = [
    "Bases",
    "Values",
    "check_spread",
    "groups_of",
    "of_each",
    "optimizers_of",
    "place",
    "spread",
    "with_groups",
]

Values = Sequence[Any] | dict[str, Sequence[Any]]
"""A number for each parameter group; by name, where there are several optimizers."""


def of_each(function: Callable[[Any], Any], values: Values) -> Values:
    """Apply a function to the value of each group."""
    if isinstance(values, dict):
        return {name: list(map(function, group)) for name, group in values.items()}
    return list(map(function, values))


FEW = 16
"""Up to so many different bases an array is no faster than one after the other."""


class Bases:
    """The base of each group, sorted out once: most groups share theirs.

    Args:
        bases: One for each group.
    """

    def __init__(self, bases: Sequence[Any]) -> None:
        self._bases = list(bases)
        self._distinct = list(dict.fromkeys(bases))
        numbers = {base: i for i, base in enumerate(self._distinct)}
        self._numbers = [numbers[base] for base in bases]
        many = len(self._distinct) > FEW and {*map(type, self._distinct)} == {float}
        self._array = np.array(self._bases) if many else None

    def are(self, bases: Sequence[Any]) -> bool:
        """Whether these are the bases."""
        return self._bases == bases

    def values(self, value: Callable[..., Any], *now: Any, at_once: bool) -> list[Any]:
        """Return ``value(base, *now)`` of each group, computed once for each different base.

        Args:
            value: The function.
            now: What it takes besides.
            at_once: Whether it takes an array of bases: between a float and an array numpy does
                what Python does between two floats, to the last bit.
        """
        if len(self._distinct) == 1:
            return [value(self._distinct[0], *now)] * len(self._bases)
        if self._array is not None and at_once:
            every: list[Any] = value(self._array, *now).tolist()
            return every
        found = [value(base, *now) for base in self._distinct]
        return [found[number] for number in self._numbers]


def optimizers_of(optimizer: Any) -> list[tuple[str, Any]]:
    """Return the optimizers by name; a single one has the name of its class."""
    if isinstance(optimizer, dict):
        return list(optimizer.items())
    return [(type(optimizer).__name__, optimizer)]


def place(name: str, optimizer: Any, group: int | None = None) -> str:
    """Name a parameter group, or all of an optimizer's, in a message."""
    kind = type(optimizer).__name__
    number = len(optimizer.param_groups)
    groups = "group 0" if number == 1 else f"groups 0 to {number - 1}"
    if group is not None:
        groups = f"group {group}"
    return f"{kind} ({groups})" if name == kind else f"{name!r}: {kind} ({groups})"


def groups_of(optimizer: Any) -> str:
    """Name all parameter groups of an optimizer, or of a dict of them, in a message."""
    return ", ".join(place(name, one) for name, one in optimizers_of(optimizer))


def with_groups(optimizer: Any, values: Values) -> Iterator[tuple[str, int, dict[str, Any], Any]]:
    """Yield the name of the optimizer, the number of the group, the group and its value."""
    for name, one in optimizers_of(optimizer):
        of_groups = values[name] if isinstance(values, dict) else values
        # groups added during the run have no value
        for i, (group, value) in enumerate(zip(one.param_groups, of_groups, strict=False)):
            yield name, i, group, value


def check_spread(name: str, given: Any) -> None:
    """Refuse what :func:`spread` cannot make numbers of.

    Raises:
        ValueError: if it is no finite number, list of these or dict of these.
    """
    if isinstance(given, dict):
        for key, values in given.items():
            check_spread(f"{name}[{key!r}]", values)
        return
    many = isinstance(given, (list, tuple))
    if not all(map(is_finite, given if many else [given])):
        raise ValueError(f"{name} must be a number, a list or a dict, got {given!r}")


def spread(argument: str, given: Any, name: str, optimizer: Any) -> list[float]:
    """Return one number for each group, given one for all, a list, or a dict of these by name.

    Args:
        argument: What it is called in the error.
        given: The number or numbers.
        name: The optimizer's name.
        optimizer: The optimizer.

    Raises:
        ValueError: if the dict lacks the name, or the list has another length.
    """
    where = place(name, optimizer)
    if isinstance(given, dict):
        if name not in given:
            raise ValueError(f"{argument} has no value for {where}, only for {list(given)}")
        given = given[name]
    if not isinstance(given, (list, tuple)):
        return [given] * len(optimizer.param_groups)
    if len(given) != len(optimizer.param_groups):
        raise ValueError(f"{argument} has {len(given)} values, one is needed for each of {where}")
    return list(given)
