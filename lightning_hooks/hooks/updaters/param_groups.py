"""Values of an optimizer's parameter groups: compute, match with the groups, describe."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from lightning_hooks.utils.arguments import is_finite, shown

__all__ = [
    "Values",
    "as_number",
    "check_per_group",
    "describe_groups",
    "describe_optimizers",
    "fill",
    "map_values",
    "optimizers_of",
    "own_tensors",
    "parameter_names",
    "per_group",
    "with_groups",
]

Values = Sequence[Any] | dict[str, Sequence[Any]]
"""A value for each parameter group; a dict by the optimizer's name for several optimizers."""


def as_number(value: Any) -> float:
    """Return a group's entry as a number of Python's: a tensor, or numpy's number, is read."""
    return value if isinstance(value, (int, float)) else float(value)


def fill(entries: Any, key: Any, value: float) -> None:
    """Set an entry; a tensor is filled in place, because a compiled step holds the tensor."""
    entry = entries[key]
    if isinstance(entry, torch.Tensor):
        entry.fill_(value)
    else:
        entries[key] = value


def own_tensors(optimizer: Any) -> None:
    """Copy tensors that groups share with each other or with the optimizer's defaults.

    torch puts the tensor of ``Adam(..., lr=torch.tensor(0.1))`` into all. The first group keeps it.
    """
    seen: set[int] = set()
    for entries in [*optimizer.param_groups, optimizer.defaults]:
        for key, value in [*entries.items()]:
            if key == "params":
                continue
            tensors = value if isinstance(value, tuple) else (value,)
            held = {id(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)}
            if held & seen:
                entries[key] = copy.deepcopy(value)
            seen |= held


def map_values(function: Callable[[Any], Any], values: Values) -> Values:
    """Apply a function to the value of each group."""
    if isinstance(values, dict):
        return {name: list(map(function, group)) for name, group in values.items()}
    return list(map(function, values))


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
    return ", ".join(describe_groups(name, member) for name, member in optimizers_of(optimizer))


def with_groups(
    optimizer: Any, values: Values
) -> Iterator[tuple[tuple[str, Any, int], dict[str, Any], Any]]:
    """Yield the arguments of :func:`describe_groups` for each group, the group and its value."""
    for name, member in optimizers_of(optimizer):
        of_groups = values[name] if isinstance(values, dict) else values
        # groups added during the run have no value yet
        for i, (group, value) in enumerate(zip(member.param_groups, of_groups, strict=False)):
            yield (name, member, i), group, value


def check_per_group(name: str, value: Any) -> None:
    """Check an argument of :func:`per_group`.

    Raises:
        ValueError: unless the value is a finite number, a list of numbers, or a dict of either.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            check_per_group(f"{name}[{shown(key)}]", item)
    elif not all(map(is_finite, value if isinstance(value, (list, tuple)) else [value])):
        raise ValueError(f"{name} must be a number, a list or a dict, got {shown(value)}")


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


def parameter_names(module: Any, parameters: Sequence[Any]) -> list[str]:
    """Return the names of parameters in a module, or their shapes."""
    known = {id(parameter): name for name, parameter in module.named_parameters()}
    return [
        known.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")
        for parameter in parameters
    ]
