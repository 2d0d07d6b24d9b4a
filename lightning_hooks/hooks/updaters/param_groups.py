"""Values of an optimizer's parameter groups: compute, match with the groups, describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.error_notes import class_name, listed
from lightning_hooks.utils.arguments import is_finite

__all__ = [
    "DistinctBases",
    "Values",
    "adopt_new_groups",
    "check_per_group",
    "describe_groups",
    "describe_optimizers",
    "elementwise",
    "map_values",
    "optimizers_of",
    "per_group",
    "with_groups",
]

F = TypeVar("F", bound=Callable[..., Any])

Values = Sequence[Any] | dict[str, Sequence[Any]]
"""A value for each parameter group; a dict by the optimizer's name for several optimizers."""

MANY = 16
"""With more distinct bases, an array is faster than a loop."""


def map_values(function: Callable[[Any], Any], values: Values) -> Values:
    """Apply a function to the value of each group."""
    if isinstance(values, dict):
        return {name: list(map(function, group)) for name, group in values.items()}
    return list(map(function, values))


def elementwise(value: F) -> F:
    """Mark a policy's ``value`` as accepting an array of bases, too."""
    value.elementwise = True  # type: ignore[attr-defined]
    return value


class DistinctBases:
    """The bases of an optimizer's groups, without duplicates.

    Args:
        bases: The base of each group.
    """

    def __init__(self, bases: Sequence[Any]) -> None:
        self._bases = list(bases)
        self._distinct = list(dict.fromkeys(bases))
        numbers = {base: i for i, base in enumerate(self._distinct)}
        self._numbers = [numbers[base] for base in bases]
        many = len(self._distinct) > MANY and {*map(type, self._distinct)} == {float}
        self._array = np.array(self._bases) if many else None

    def equal(self, bases: Sequence[Any]) -> bool:
        """Whether the groups have these bases."""
        return self._bases == bases

    def values(self, value: Callable[..., Any], *now: Any, as_array: bool) -> list[Any]:
        """Return ``value(base, *now)`` of each group, computed once for each distinct base.

        Args:
            value: The function.
            now: Further arguments of the function.
            as_array: Whether the function takes an array of bases: numpy computes each element to
                the last bit as Python alone.
        """
        if len(self._distinct) == 1:
            return [value(self._distinct[0], *now)] * len(self._bases)
        if self._array is not None and as_array:
            values: list[Any] = value(self._array, *now).tolist()
            return values
        found = [value(base, *now) for base in self._distinct]
        return [found[number] for number in self._numbers]


def optimizers_of(optimizer: Any) -> list[tuple[str, Any]]:
    """Return pairs of name and optimizer; a single optimizer has its class as name."""
    if isinstance(optimizer, dict):
        return list(optimizer.items())
    return [(type(optimizer).__name__, optimizer)]


def describe_groups(name: str, optimizer: Any, group: int | None = None) -> str:
    """Describe a parameter group, or all groups of an optimizer, for a message."""
    kind = type(optimizer).__name__
    number = len(optimizer.param_groups)
    groups = "group 0" if number == 1 else f"groups 0 to {number - 1}"
    if group is not None:
        groups = f"group {group}"
    return f"{kind} ({groups})" if name == kind else f"{name!r}: {kind} ({groups})"


def describe_optimizers(optimizer: Any) -> str:
    """Describe all parameter groups of an optimizer, or of a dict of optimizers, for a message."""
    return ", ".join(describe_groups(name, one) for name, one in optimizers_of(optimizer))


def with_groups(
    optimizer: Any, values: Values
) -> Iterator[tuple[tuple[str, Any, int], dict[str, Any], Any]]:
    """Yield the arguments of :func:`describe_groups` for each group, the group and its value."""
    for name, one in optimizers_of(optimizer):
        of_groups = values[name] if isinstance(values, dict) else values
        # groups added during the run have no value yet
        for i, (group, value) in enumerate(zip(one.param_groups, of_groups, strict=False)):
            yield (name, one, i), group, value


def check_per_group(name: str, value: Any) -> None:
    """Check an argument of :func:`per_group`.

    Raises:
        ValueError: unless the value is a finite number, a list of numbers, or a dict of either.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            check_per_group(f"{name}[{key!r}]", item)
    elif not all(map(is_finite, value if isinstance(value, (list, tuple)) else [value])):
        raise ValueError(f"{name} must be a number, a list or a dict, got {value!r}")


def per_group(argument: str, value: Any, name: str, optimizer: Any) -> list[float]:
    """Return one number for each parameter group of an optimizer.

    Args:
        argument: The argument's name, for errors.
        value: A number for all groups, a list with a number for each group, or a dict of either by
            the optimizer's name.
        name: The optimizer's name.
        optimizer: The optimizer.

    Raises:
        ValueError: if the dict lacks the name, or the list has another length.
    """
    if isinstance(value, dict):
        if name not in value:
            where = describe_groups(name, optimizer)
            raise ValueError(f"{argument} has no value for {where}, only for {list(value)}")
        value = value[name]
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        where = describe_groups(name, optimizer)
        raise ValueError(f"{argument} has {len(value)} values, not one for each of {where}")
    return list(value)


def adopt_new_groups(hook: Any, runner: Any) -> bool:
    """Read the bases of groups added by ``optimizer.add_param_group`` or a callback.

    Args:
        hook: An :class:`~lightning_hooks.hooks.updaters.updater.Updater` in a run.
        runner: The runner.

    Returns:
        Whether any group was added.
    """
    found = False
    for name, optimizer in optimizers_of(runner.optimizer):
        known = hook.base.get(name) if isinstance(hook.base, dict) else hook.base
        if known is None or len(known) >= len(optimizer.param_groups):
            continue  # with fewer groups the first bases count, as in mmcv
        try:
            bases = hook.bases_of(name, optimizer)
        except ValueError as error:
            rank_zero_warn(
                f"{class_name(hook)} leaves the {hook.quantity} of added groups as it is: {error}"
            )
            continue
        new = range(len(known), len(bases))
        for group in new:
            runner.logger.info(
                "%s also sets the %s of %s from now on, with the base %s: %s",
                class_name(hook),
                hook.quantity,
                describe_groups(name, optimizer, group),
                bases[group],
                listed(_names(runner.module, optimizer.param_groups[group]["params"])),
            )
        bases = [*known, *bases[len(known) :]]
        hook.base = {**hook.base, name: bases} if isinstance(hook.base, dict) else bases
        found = True
    return found


def _names(module: Any, parameters: Sequence[Any]) -> list[str]:
    known = {id(parameter): name for name, parameter in module.named_parameters()}
    return [known.get(id(one), f"a parameter of shape {tuple(one.shape)}") for one in parameters]
