"""The interface between the driver and callbacks with hooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.lightning_api.method_patch import Fit

__all__ = ["Participant", "RunnerOptions", "each_once", "merge_options"]


@dataclasses.dataclass(frozen=True)
class RunnerOptions:
    """Options of the Runner; None means unset."""

    by_epoch: bool | None = None
    work_dir: str | None = None
    meta: dict[str, Any] | None = None
    model: Callable[[Any], torch.nn.Module] | None = None
    attributes: dict[str, Any] | None = None
    owns_backward: bool | Literal["auto"] | None = None
    runner: Any = None


class Participant(Callback):
    """A callback with hooks for the driver: a single hook, or an adapter with many."""

    hosted_at: int | None = None
    """The index of a hook among the hosted hooks of the Trainer; None for a hook not hosted."""

    joined_fit: Fit | None = None
    """The present or last fit, or evaluation, of the callback."""

    def entries(self) -> Sequence[tuple[Any, int]]:
        """The hooks with priorities, in the order given."""
        raise NotImplementedError

    def options(self) -> RunnerOptions:
        """The options set for the Runner."""
        return RunnerOptions()


def each_once(entries: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Return the entries unchanged.

    Raises:
        ValueError: if a hook is given twice.
    """
    for index, (hook, _) in enumerate(entries):
        if any(hook is other for other, _ in entries[:index]):
            raise ValueError(
                f"the same {type(hook).__name__} object is given twice; "
                "a hook takes part in a Trainer once"
            )
    return entries


def merge_options(options: Sequence[RunnerOptions]) -> RunnerOptions:
    """Merge the options of all participants.

    Raises:
        ValueError: if two participants differ in an option: a Trainer has a single Runner.
    """
    merged: dict[str, Any] = {}
    for field in dataclasses.fields(RunnerOptions):
        for one in options:
            value = getattr(one, field.name)
            if value is None:
                continue
            if not _same(merged.setdefault(field.name, value), value):
                raise ValueError(
                    f"two HookAdapters of one Trainer differ in {field.name}: "
                    f"{merged[field.name]!r} and {value!r}; they share one Runner, "
                    "so give it to one of them, or the same to both"
                )
    return RunnerOptions(**merged)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # tensors and arrays
        return False
