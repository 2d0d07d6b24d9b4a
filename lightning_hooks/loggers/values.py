"""Kinds of logged values: numbers, texts and images."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.samples import as_image, is_image

__all__ = ["by_kind", "is_scalar"]


def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
    """Whether a value is a number, or an array or tensor of one.

    >>> is_scalar(torch.tensor(0.5)), is_scalar(np.ones(2)), is_scalar("cat")
    (True, False, False)
    """
    if isinstance(val, numbers.Number):
        return True
    if isinstance(val, np.ndarray):
        return include_np and val.ndim == 0
    return include_torch and isinstance(val, torch.Tensor) and val.numel() == 1


def by_kind(tags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort tags into ``scalars``, ``texts`` and ``images``; other values are left out.

    >>> by_kind({"loss": torch.tensor(0.5), "best": "cat", "recalls": [0.1, 0.2]})
    {'scalars': {'loss': 0.5}, 'texts': {'best': 'cat'}, 'images': {}}
    """
    return {
        "scalars": {name: float(v) for name, v in tags.items() if is_scalar(v)},
        "texts": {name: v for name, v in tags.items() if isinstance(v, str)},
        "images": {name: as_image(v) for name, v in tags.items() if is_image(v)},
    }
