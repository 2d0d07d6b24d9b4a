"""Names of arguments: what a class takes, and what a misspelt one may have meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from lightning_hooks.suggest import suggest

__all__ = ["check_names", "names_of", "parameter_names"]

PASSED_ON = ("kwargs", "options")
"""What the arguments for the next class are called in ours; under another name they are taken."""


def check_names(user: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an argument that is not known, in Python's words and with what was meant.

    >>> check_names("EMAHook", ["momentm"], ["interval", "momentum"])
    Traceback (most recent call last):
    TypeError: EMAHook() got an unexpected keyword argument 'momentm'; did you mean 'momentum'? \
Known: interval, momentum
    """
    names = set(known)
    for name in given:
        if name not in names:
            wrong = f"{user}() got an unexpected keyword argument {name!r}"
            if name == "priority":  # mmcv's configs have it among the arguments
                raise TypeError(f"{wrong}; write HookAdapter([({user}(...), priority)])")
            raise TypeError(f"{wrong}; {suggest(name, names)}")


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """Return the names that can be given to a function as keywords.

    >>> parameter_names(lambda interval, *, priority=None, **more: None)
    ['interval', 'priority']
    """
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in by_name]


def names_of(cls: type) -> set[str] | None:
    """Return the names of a class's arguments, with those that its bases are given.

    None where that cannot be told: the class, or a base that gets the rest, takes any name.
    """
    names: set[str] = set()
    for base in cls.__mro__[:-1]:
        init = vars(base).get("__init__")
        if init is None:
            continue
        names.update(parameter_names(init)[1:])
        rest = {p.kind: p.name for p in inspect.signature(init).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in rest:
            return names
        ours = base.__module__.startswith("lightning_hooks.")
        passes_on = rest[inspect.Parameter.VAR_KEYWORD] in PASSED_ON
        if not (ours and passes_on) or inspect.Parameter.VAR_POSITIONAL in rest:
            return None
    return None
