"""Check numbers that are to be averaged, and pack them for a checkpoint."""

from __future__ import annotations

import reprlib
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

__all__ = ["averageable", "packed"]


def averageable(key: str, value: Any) -> Any:
    """Return a value that can be averaged; an array of one number as that number.

    Raises:
        TypeError: if it is no real number, nor an array or tensor of them.
        OverflowError: if it is too large for a float.

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
        f"{reprlib.repr(value)} of type {type(value).__name__}; what is logged as it is goes into "
        "log_buffer.output"
    )


def packed(numbers: list[Any]) -> torch.Tensor:
    """Return numbers as a tensor of integers, or of floats if one is no integer of 64 bits."""
    is_integral = all(isinstance(n, Integral) and -(2**63) <= int(n) < 2**63 for n in numbers)
    return torch.tensor(numbers, dtype=torch.int64 if is_integral else torch.float64)
