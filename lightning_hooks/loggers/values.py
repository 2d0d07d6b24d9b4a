"""Kinds of logged values: numbers, texts and images."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["as_image", "by_kind", "is_image", "is_scalar"]


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


def is_image(value: Any) -> bool:
    """Whether a value has the shape of an image: ``[C, H, W]`` with 1, 3 or 4 channels.

    >>> is_image(torch.zeros(3, 8, 8)), is_image(torch.zeros(8, 8, 3)), is_image(0.5)
    (True, False, False)
    """
    if not isinstance(value, (torch.Tensor, np.ndarray)) or value.ndim != 3:
        return False
    channels, height, width = value.shape
    return channels in (1, 3, 4) and height * width > 1


def as_image(value: torch.Tensor | np.ndarray) -> np.ndarray:
    """Return an image as ``uint8``: floats are scaled from 0..1, integers are taken as 0..255.

    >>> as_image(torch.tensor([[[0.0, 0.5, 1.0]]])).tolist()
    [[[0, 128, 255]]]
    """
    if isinstance(value, torch.Tensor):
        wide = value.detach().float() if value.is_floating_point() else value.detach()
        array = wide.cpu().numpy()
    else:
        array = value
    if array.dtype.kind == "f":
        array = np.nan_to_num(array).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    return array.clip(0, 255).astype(np.uint8)


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
