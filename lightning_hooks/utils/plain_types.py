"""Convert values to plain Python types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.arguments import shown

__all__ = ["averageable", "count_values", "packed", "plain", "plain_groups"]


def plain(value: Any) -> Any:
    """Return a value in types for ``torch.load(weights_only=True)``.

    numpy's scalars and arrays become numbers and lists, sets lists, mappings dicts, and objects of
    all other types (paths, classes) their ``str``.

    >>> plain({"score": np.float64(0.5), "ids": np.arange(2), "type": dict})
    {'score': 0.5, 'ids': [0, 1], 'type': "<class 'dict'>"}
    """
    if isinstance(value, (np.generic, np.ndarray)):  # first: np.float64 is a float, np.str_ a str
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.Tensor)):
        return value
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, (list, set, frozenset)):
        return [plain(v) for v in value]
    if callable(getattr(value, "items", None)) and not isinstance(value, type):
        return {plain(k): plain(v) for k, v in value.items()}
    return str(value)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple, set, frozenset)) else ()


def count_values(value: Any, parts: Callable[[Any], Iterable[Any]] = _parts) -> float:
    """Return the number of values in a value, itself included, at any depth.

    A value counts at each place that refers to the value. One inside of itself, or too deep for
    Python's stack, counts without end.

    Args:
        value: The value.
        parts: Gives the values directly in a value; by default of dicts, lists, tuples and sets.

    >>> twice = [0.1, 0.2]
    >>> count_values({"lr": twice, "again": twice})
    7
    """
    known: dict[int, float] = {}

    def count(value: Any) -> float:
        if id(value) not in known:
            known[id(value)] = math.inf  # until the parts are counted
            known[id(value)] = 1 + sum(map(count, parts(value)))
        return known[id(value)]

    try:
        return count(value)
    except RecursionError:
        return math.inf


def plain_groups(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with Python numbers in the groups; old hooks set numpy numbers.

    >>> plain_groups({"param_groups": [{"weight_decay": np.float64(0.1), "params": [0]}]})
    {'param_groups': [{'weight_decay': 0.1, 'params': [0]}]}
    """
    groups = [
        {k: v.item() if isinstance(v, np.generic) else v for k, v in group.items()}
        for group in state.get("param_groups", ())
    ]
    return {**state, "param_groups": groups} if groups else state


def averageable(key: str, value: Any) -> Any:
    """Return a value for an average: a number or a tensor; an array of size 1 as a number.

    Raises:
        TypeError: for a value of another type, or complex numbers.
        OverflowError: for a number too large for a float.

    >>> averageable("loss", 0.5), averageable("loss", np.array([2]))
    (0.5, 2)
    """
    if isinstance(value, torch.Tensor) and not value.is_complex():
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, Real):
        try:
            float(value)
        except OverflowError:
            raise OverflowError(
                f"log_buffer.update(): {key!r} is too large for a float, so it cannot be averaged; "
                "put in its logarithm, or leave it out"
            ) from None
        return value
    raise TypeError(
        f"log_buffer.update(): {key!r} must be a number or a 0-d tensor, to be averaged, got "
        f"{shown(value)} of type {type(value).__name__}; what is logged as it is goes into "
        "log_buffer.output"
    )


def packed(numbers: list[Any]) -> torch.Tensor:
    """Return numbers as an int64 tensor, or as float64 if a number is no 64-bit integer."""
    is_integral = all(issubclass(kind, Integral) for kind in {*map(type, numbers)})
    ends = (min(numbers, default=0), max(numbers, default=0)) if is_integral else ()
    is_integral = is_integral and all(-(2**63) <= int(n) < 2**63 for n in ends)
    # numpy takes a third of torch's time
    return torch.from_numpy(np.array(numbers, dtype=np.int64 if is_integral else np.float64))
