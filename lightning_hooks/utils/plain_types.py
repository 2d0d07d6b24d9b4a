"""Convert values to plain Python types, which any reader of a file understands."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["plain", "plain_groups"]


def plain(value: Any) -> Any:
    """Return the value in types that ``torch.load(weights_only=True)`` reads.

    numpy's scalars and arrays become numbers and lists, paths become strings, mappings dicts;
    what has no such form becomes its ``str``.

    >>> plain({"score": np.float64(0.5), "ids": np.arange(2)})
    {'score': 0.5, 'ids': [0, 1]}
    """
    if isinstance(value, np.generic):  # first: np.float64 is a float, np.str_ a str
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.Tensor)):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, (list, set, frozenset)):
        return [plain(v) for v in value]
    if hasattr(value, "items"):
        return {plain(k): plain(v) for k, v in value.items()}
    return str(value)


def plain_groups(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with numpy's numbers in its groups, as old hooks set, plain.

    >>> plain_groups({"param_groups": [{"weight_decay": np.float64(0.1), "params": [0]}]})
    {'param_groups': [{'weight_decay': 0.1, 'params': [0]}]}
    """
    groups = [
        {k: v.item() if isinstance(v, np.generic) else v for k, v in group.items()}
        for group in state.get("param_groups", ())
    ]
    return {**state, "param_groups": groups} if groups else state
