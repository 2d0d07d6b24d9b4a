"""``Roster``: the hooks that take part in a fit or an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import lightning as L

from lightning_hooks.engine.hook_callback import HookCallback, RunnerOptions
from lightning_hooks.engine.hosted import foreign
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.utils.arguments import shown

__all__ = ["Roster", "check_each_once", "hook_callbacks_of", "merge_options"]


class Roster:
    """The hooks of a Trainer, computed once, when the first hook is set up.

    Args:
        callbacks: The hooks and adapters among the Trainer's callbacks, in order.
        earlier: The hooks put among the callbacks for an earlier fit of the Trainer.

    Raises:
        ValueError: if a hook is given twice, or two adapters differ in an option.
    """

    def __init__(
        self, callbacks: Sequence[HookCallback] = (), earlier: Sequence[HookCallback] = ()
    ) -> None:
        by_callback = [(callback, callback._entries()) for callback in callbacks]
        put = set(map(id, earlier))
        for callback, entries in by_callback:
            inside = [hook for hook, _ in entries if hook is not callback]
            put |= {id(hook) for hook in inside if getattr(hook, "_hosted_at", None) is not None}
        given = [
            (callback, entries) for callback, entries in by_callback if id(callback) not in put
        ]
        self.given: list[HookCallback] = [callback for callback, _ in given]
        """The hooks and adapters given by the user."""
        self.entries: list[tuple[Any, int]] = [entry for _, entries in given for entry in entries]
        """The hooks of all with their priorities, in the order given."""
        check_each_once(self.entries)
        self.hooks: list[Any] = [hook for hook, _ in self.entries]
        """The hooks, in the order given; then the hooks registered in the run."""
        natives = [hook for hook in self.hooks if isinstance(hook, HookCallback)]
        by_user = set(map(id, self.given))
        self.hosted: list[HookCallback] = [hook for hook in natives if id(hook) not in by_user]
        """The native hooks of adapters; as callbacks of the Trainer they get Lightning's events."""
        self.options = merge_options(self.given)

    def begin(self) -> None:
        """Number the hosted hooks; no other hook keeps a number of an earlier Trainer."""
        for callback in self.given:
            _set_place(callback, None)
        for place, hook in enumerate(self.hosted):
            _set_place(hook, place)

    def host(self, hook: HookCallback) -> None:
        """Take in a native hook that is registered during the run."""
        _set_place(hook, len(self.hosted))
        self.hosted.append(hook)
        self.hooks.append(hook)

    def has_left(self, hook: HookCallback) -> bool:
        """Whether a hook is among the callbacks for an adapter that is gone."""
        return hook._hosted_at is not None and all(hook is not each for each in self.hosted)


def _set_place(hook: HookCallback, place: int | None) -> None:
    hook._hosted_at = place
    vars(hook).pop("state_key", None)  # made of the place


def hook_callbacks_of(trainer: L.Trainer) -> list[HookCallback]:
    """Return the hooks and adapters among the Trainer's callbacks."""
    return [callback for callback in callbacks_of(trainer) if isinstance(callback, HookCallback)]


def check_each_once(entries: Iterable[tuple[Any, int]]) -> None:
    """Check that no hook is given twice.

    Args:
        entries: Pairs of hook and priority.

    Raises:
        ValueError: if a hook is given twice.
    """
    known: set[int] = set()
    for hook in [foreign(hook) for hook, _ in entries]:
        if id(hook) in known:
            raise ValueError(
                f"the same {type(hook).__name__} object is given twice; "
                "a hook takes part in a Trainer once"
            )
        known.add(id(hook))


def merge_options(callbacks: Iterable[HookCallback]) -> RunnerOptions:
    """Merge the options of hooks and adapters.

    Raises:
        ValueError: if two adapters differ in an option: a Trainer has a single Runner.
    """
    options = [callback._runner_options() for callback in callbacks]
    merged: dict[str, Any] = {}
    for field in dataclasses.fields(RunnerOptions):
        for given in options:
            value = getattr(given, field.name)
            if value is None:
                continue
            if not _same(merged.setdefault(field.name, value), value):
                raise ValueError(
                    f"two HookAdapters of one Trainer differ in {field.name}: "
                    f"{shown(merged[field.name])} and {shown(value)}; they share one Runner, "
                    "so give it to one of them, or the same to both"
                )
    return RunnerOptions(**merged)


def _same(value: Any, other: Any) -> bool:
    try:
        return value is other or bool(value == other)
    except (RuntimeError, ValueError):  # tensors and arrays
        return False
