"""What was put where it does not belong: it is answered with where it does.

Methods that nobody calls because their names are those of points, but for a letter.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import lightning as L
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.points import GENERIC, STAGES

__all__ = ["AskedFirst", "HostedOnly", "NoLogger", "for_objects", "misspelt", "refuse_misplaced"]

F = TypeVar("F", bound=Callable[..., None])


def refuse_misplaced(trainer: L.Trainer) -> None:
    """Refuse what is in a Trainer's callbacks and is none.

    Raises:
        TypeError: with what to write instead.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    wrong = [c for c in callbacks if not _is_callback(c)]
    if wrong:
        # Lightning tells each of the error, which these would answer with another
        trainer.callbacks = [c for c in callbacks if _is_callback(c)]  # type: ignore[attr-defined]
        raise TypeError(_advice(wrong[0]))


def for_objects(setup: F) -> F:
    """Make a callback's ``setup`` refuse to be called for its class, as Lightning then does."""

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
    return (
        f"the hook {name} is not a Lightning Callback; "
        f"write Trainer(callbacks=[HookAdapter([{name}(...)])])"
    )


class AskedFirst:
    """Looks at all callbacks when Lightning sets a module's method on one, which it does first.

    Before it calls any of them: what is no callback has none of its methods, and would end the fit
    without saying what it is.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, callback: Any, owner: type) -> Any:
        if callback is None or self._name not in callback.__dict__:
            raise AttributeError(f"{owner.__name__} has no {self._name!r} before a fit")
        return callback.__dict__[self._name]

    def __set__(self, callback: Any, method: Any) -> None:
        trainer = getattr(getattr(method, "__self__", None), "trainer", None)
        if isinstance(trainer, L.Trainer):
            refuse_misplaced(trainer)
        callback.__dict__[self._name] = method


class NoLogger:
    """Has the first methods that Lightning calls of a logger and of a profiler: to refuse."""

    def finalize(self, status: str) -> None:
        """What it calls of a logger.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} was given as Trainer(logger=...)")

    def profile(self, action_name: str) -> Any:
        """What it calls of a profiler.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} was given as Trainer(profiler=...)")


class HostedOnly:
    """Base of the hooks that an adapter hosts, which say so where they are given to a Trainer."""

    @property
    def state_key(self) -> str:
        """What Lightning asks a callback with a state for, when a Trainer is made."""
        raise TypeError(_advice(self))

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """What it calls first."""
        refuse_misplaced(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """What it tells of an error: this one may not hide it."""


POINTS = [*STAGES, *dict.fromkeys(GENERIC.values())]

OWN = ("lightning_hooks", "lightning", "mmcv", "mmengine")
"""Packages whose classes have the names that they want."""


def misspelt(hook: Any) -> Iterator[tuple[str, str]]:
    """Yield the names in a hook's classes, but ours, that look like a point, and that point.

    >>> class Late:
    ...     __module__ = "my_hooks"
    ...     def after_train_iters(self, runner): ...
    >>> list(misspelt(Late()))
    [('after_train_iters', 'after_train_iter')]
    """
    classes = [c for c in type(hook).__mro__[:-1] if c.__module__.partition(".")[0] not in OWN]
    found = {name: value for cls in classes for name, value in vars(cls).items()}
    for name, value in found.items():
        # a property is not asked for: it may have no value yet
        if not isinstance(value, types.FunctionType) or name in POINTS or name.startswith("_"):
            continue
        for point in difflib.get_close_matches(name, POINTS, n=1, cutoff=0.9):
            yield name, point
