"""The hyper-parameters of a run, as names with plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.files import plain

__all__ = ["flat"]


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters under joined names; what has no plain form becomes its ``str``.

    >>> flat({"lr": 0.1, "data": {"size": 32, "means": [1, 2]}})
    {'lr': 0.1, 'data/size': 32, 'data/means': '[1, 2]'}
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        value = plain(value)
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{prefix}{name}/"))
        else:
            simple = value is None or isinstance(value, (bool, int, float, str))
            found[f"{prefix}{name}"] = value if simple else str(value)
    return found
