"""Find mistakes in the use of hooks, and raise errors that name what to write instead."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy

from lightning_hooks.engine.points import POINTS

__all__ = [
    "HostedOnly",
    "for_objects",
    "misspelt_points",
    "place_elsewhere",
    "refuse_misplaced",
    "uncallable_events",
    "uncallable_points",
]

OTHER_ARGUMENTS = {"logger": Logger, "profiler": Profiler, "strategy": Strategy}
"""Arguments of the Trainer whose objects are given as callbacks by mistake."""

F = TypeVar("F", bound=Callable[..., None])


def refuse_misplaced(trainer: L.Trainer) -> None:
    """Check that everything in ``trainer.callbacks`` is a callback.

    Raises:
        TypeError: if something is not, with what to write instead.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    wrong = [c for c in callbacks if not _is_callback(c)]
    if wrong:
        # Lightning calls on_exception of each, where these would raise an error of their own
        trainer.callbacks = [c for c in callbacks if _is_callback(c)]  # type: ignore[attr-defined]
        raise TypeError(_advice(wrong[0]))


def for_objects(setup: F) -> F:
    """Check a callback's ``setup`` for a call on the class: the user passed no object."""

    @functools.wraps(setup)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self, L.Trainer):  # the bare function of a class: its first argument
            refuse_misplaced(self)
        setup(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def _is_callback(given: Any) -> bool:
    hosted = isinstance(given, HostedOnly)
    return hasattr(given, "on_exception") and not inspect.isclass(given) and not hosted


def _advice(given: Any) -> str:
    if inspect.isclass(given):
        made = f"{given.__name__}(...)"
        ours = issubclass(given, Callback)
        write = made if ours else f"HookAdapter([{made}])"
        return f"{given.__name__} is a class; pass an object: Trainer(callbacks=[{write}])"
    name = type(given).__name__
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (str, int)):
        return f"{given!r} is a hook with its priority; write callbacks=[HookAdapter([{given!r}])]"
    if isinstance(given, (list, tuple)):
        return f"a {name} is among the callbacks: {given!r}; unpack it, callbacks=[*hooks, ...]"
    if isinstance(given, Mapping):
        return f"{given!r} is a hook's config; write callbacks=[HookAdapter([{given!r}])]"
    if isinstance(given, str):
        return f"{given!r} is a name; write callbacks=[HookAdapter([dict(type={given!r})])]"
    if given is None:
        return "None is among the callbacks; leave it out"
    return place_elsewhere(given) or (
        f"the hook {name} is not a Lightning Callback; "
        f"write Trainer(callbacks=[HookAdapter([{name}(...)])])"
    )


def place_elsewhere(given: Any) -> str | None:
    """Return what to write for an object of Lightning's that is no callback, None for others."""
    name = type(given).__name__
    for argument, kind in OTHER_ARGUMENTS.items():
        if isinstance(given, kind):
            return f"{name} is a {argument}, no callback; write Trainer({argument}={name}(...))"
    return None


class HostedOnly:
    """The base of hooks that only an adapter can host: given to a Trainer, they raise why."""

    @property
    def state_key(self) -> str:
        """Refuse: Lightning reads it of a callback with a state when a Trainer is made."""
        raise TypeError(_advice(self))

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse: Lightning calls it of every callback first."""
        refuse_misplaced(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Do nothing: the error from ``setup`` is the one to show."""


POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD

OWN = ("lightning_hooks", "lightning", "mmcv", "mmengine")
"""Packages whose classes are not searched for misspelt points."""


def misspelt_points(hook: Any, points: Collection[str] = POINTS) -> Iterator[tuple[str, str]]:
    """Yield each method of a user's hook whose name is nearly that of a point, with that point.

    >>> class Late:
    ...     __module__ = "my_hooks"
    ...     def after_train_iters(self, runner): ...
    >>> list(misspelt_points(Late()))
    [('after_train_iters', 'after_train_iter')]
    """
    for name, value in _written_by_user(hook).items():
        if not isinstance(value, types.FunctionType) or name in points or name.startswith("_"):
            continue
        for point in difflib.get_close_matches(name, points, n=1, cutoff=0.9):
            yield name, point


def uncallable_points(hook: Any) -> Iterator[str]:
    """Yield the points of a user's hook that cannot be called with the runner alone.

    >>> class Mixed:
    ...     __module__ = "my_hooks"
    ...     def after_run(self, runner): ...
    ...     def after_train_epoch(self, trainer, pl_module): ...
    >>> list(uncallable_points(Mixed()))
    ['after_train_epoch']
    """
    for name in sorted(_written_by_user(hook).keys() & {*POINTS}):
        with contextlib.suppress(ValueError):  # a function in C may have no signature
            parameters = inspect.signature(getattr(hook, name)).parameters.values()
            needed = [p for p in parameters if p.default is p.empty and p.kind in POSITIONAL]
            takes_one = any(p.kind in (*POSITIONAL, p.VAR_POSITIONAL) for p in parameters)
            if len(needed) > 1 or not takes_one:
                yield name


def uncallable_events(hook: Any) -> Iterator[tuple[str, str]]:
    """Yield each of Lightning's events that a user's hook cannot be called with, as it should be.

    >>> class Mixed(Callback):
    ...     __module__ = "my_hooks"
    ...     def on_train_end(self, runner): ...
    >>> list(uncallable_events(Mixed()))
    [('on_train_end', 'on_train_end(self, trainer, pl_module)')]
    """
    own = _written_by_user(hook) if isinstance(hook, Callback) else {}
    for name in sorted(own.keys() & EVENTS.keys()):
        needed = EVENTS[name]
        try:
            inspect.signature(getattr(hook, name)).bind(*needed)
        except TypeError:
            yield name, f"{name}({', '.join(['self', *needed])})"


EVENTS = {
    name: [*inspect.signature(method).parameters][1:]
    for name, method in vars(Callback).items()
    if name.startswith("on_") or name in {"setup", "teardown"}
}
"""Lightning's events with the names of their arguments."""


def _written_by_user(hook: Any) -> dict[str, Any]:
    classes = [c for c in type(hook).__mro__[:-1] if c.__module__.partition(".")[0] not in OWN]
    return {name: value for cls in classes for name, value in vars(cls).items()}
