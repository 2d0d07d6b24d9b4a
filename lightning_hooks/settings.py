"""What a participant wants of the Runner, and the sum of what all of them want."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

__all__ = ["Settings", "merge"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Wishes that belong to the Runner; None is no wish."""

    by_epoch: bool | None = None
    work_dir: str | None = None
    meta: dict[str, Any] | None = None
    model: Callable[[Any], torch.nn.Module] | None = None
    attributes: dict[str, Any] | None = None
    owns_backward: bool | Literal["auto"] | None = None
    runner: Any = None


def merge(wishes: Sequence[Settings]) -> Settings:
    """Return what all agree on.

    Raises:
        ValueError: if two differ in one of them: a Trainer has one Runner.
    """
    agreed: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        for wish in wishes:
            value = getattr(wish, field.name)
            if value is None:
                continue
            if not _same(agreed.setdefault(field.name, value), value):
                raise ValueError(
                    f"two HookAdapters of one Trainer differ in {field.name}: "
                    f"{agreed[field.name]!r} and {value!r}; they share one Runner, "
                    "so give it to one of them, or the same to both"
                )
    return Settings(**agreed)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # tensors and arrays
        return False
