"""mmcv's quantization of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["dequantize", "quantize"]


def _check(min_val: float, max_val: float, levels: int) -> None:
    if not (isinstance(levels, int) and levels > 1):
        raise ValueError(f"levels must be a positive integer, but got {levels}")
    if min_val >= max_val:
        raise ValueError(f"min_val ({min_val}) must be smaller than max_val ({max_val})")


def quantize(arr: Any, min_val: float, max_val: float, levels: int, dtype: Any = np.int64) -> Any:
    """Return the number of the level, 0 to ``levels - 1``, that each value is in.

    >>> quantize(np.array([-1.0, 0.0, 0.6, 2.0]), 0, 1, 4).tolist()
    [0, 0, 2, 3]
    """
    _check(min_val, max_val, levels)
    above = np.clip(arr, min_val, max_val) - min_val
    return np.minimum(np.floor(levels * above / (max_val - min_val)).astype(dtype), levels - 1)


def dequantize(
    arr: Any, min_val: float, max_val: float, levels: int, dtype: Any = np.float64
) -> Any:
    """Return the middle of each level.

    >>> dequantize(np.array([0, 2]), 0, 1, 4).tolist()
    [0.125, 0.625]
    """
    _check(min_val, max_val, levels)
    return (arr + 0.5).astype(dtype) * (max_val - min_val) / levels + min_val
