"""Compare the results of two runs number by number."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["differences"]


def close(one: float, other: float, within: float) -> bool:
    """Return whether two numbers are equal within a tolerance."""
    return math.isclose(one, other, rel_tol=within, abs_tol=within) or (
        one != one and other != other
    )


def differences(one: Any, other: Any, within: float = 1e-5, at: str = "") -> list[str]:
    """Return a line for each difference between two nested values.

    Args:
        one: A value of lists, dictionaries, numbers and texts.
        other: The value to compare with.
        within: The relative and absolute tolerance of numbers.
        at: The path to both values.

    Examples:
        >>> differences({"a": [1.0, 2]}, {"a": [1.0, 3]})
        ['.a.1: 2, not 3']
    """
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        missing = object()
        pairs = [(name, one.get(name, missing), other.get(name, missing)) for name in names]
        found = []
        for name, mine, its in pairs:
            if mine is missing or its is missing:
                found.append(f"{at}.{name}: only in the {'second' if mine is missing else 'first'}")
            else:
                found += differences(mine, its, within, f"{at}.{name}")
        return found
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return [f"{at}: {len(one)} of {one}, not {len(other)} of {other}"[:400]]
        numbered = enumerate(zip(one, other, strict=True))
        return [line for i, pair in numbered for line in differences(*pair, within, f"{at}.{i}")]
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
        equal = numbers and close(one, other, within)
    else:
        equal = one == other
    return [] if equal else [f"{at}: {one!r}, not {other!r}"]
