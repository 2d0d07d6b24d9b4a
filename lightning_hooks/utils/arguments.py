"""Check the types and values of constructor arguments.

A wrong type raises ``TypeError``, a wrong value ``ValueError``, each with the argument's name.
Numbers are returned as given.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from lightning_hooks.utils.suggestions import closest

__all__ = [
    "LARGEST",
    "check_bool",
    "check_choice",
    "check_count",
    "check_dict",
    "check_function",
    "check_int",
    "check_needed",
    "check_number",
    "check_numbers",
    "check_object",
    "check_path",
    "is_finite",
    "shown",
]


class _Short(reprlib.Repr):
    """Shows the beginning of dicts, lists and tuples, of subclasses too, in their own order."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict = 4, 8
        self.maxstring = self.maxother = 200

    def repr1(self, x: Any, level: int) -> str:
        methods: dict[Any, Any] = {
            dict: self.repr_dict,
            list: self.repr_list,
            tuple: self.repr_tuple,
        }
        for kind, method in methods.items():
            if isinstance(x, kind):
                return str(method(x, level))
        return super().repr1(x, level)

    def repr_dict(self, x: Any, level: int) -> str:
        if level <= 0:
            return "{...}"
        items = islice(x.items(), self.maxdict)
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(v, level - 1)}" for key, v in items]
        return f"{{{', '.join([*shown, *['...'] * (len(x) > self.maxdict)])}}}"


_LONGEST = 400
"""The most characters of a value in a message."""


def shown(value: object) -> str:
    """Return the ``repr`` of any value, cut in time proportional to what is shown.

    >>> shown("many"), shown({"z": 1, "a": [2]}), shown(-(10**5000))[:4]
    ("'many'", "{'z': 1, 'a': [2]}", '<int')
    >>> shown([[1] * 10] * 10**6)[:60]
    '[[1, 1, 1, 1, 1, 1, ...], [1, 1, 1, 1, 1, 1, ...], [1, 1, 1,'
    """
    try:
        text = _SHORT.repr(value)
    except Exception:  # an int of 5,000 digits, a __len__ that raises
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_SHORT = _Short()

LARGEST = 2**63 - 1
"""The largest allowed int: beyond it, arithmetic with floats and tensors fails."""


def check_bool(**flags: object) -> None:
    """Raise unless the values are bools.

    >>> check_bool(by_epoch=1)
    Traceback (most recent call last):
    TypeError: by_epoch must be a bool, got 1
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {shown(value)}")


def check_int(name: str, value: object, least: int = -LARGEST) -> int:
    """Return an int of at least ``least``; raise for any other value.

    >>> check_int("interval", 0, least=1)
    Traceback (most recent call last):
    ValueError: interval must be at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    if value > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST}, got a larger number")
    return value


def check_count(name: str, value: object, least: int = 1, *, optional: bool = False) -> None:
    """Raise ValueError, as mmcv does, unless a value is an int of at least ``least``, or None.

    >>> check_count("max_skips", -1, 0, optional=True)
    Traceback (most recent call last):
    ValueError: max_skips must be an int of at least 0 or None, got -1
    >>> check_count("interval", 10**30)
    Traceback (most recent call last):
    ValueError: interval must be at most 9223372036854775807, got a larger number
    """
    if optional and value is None:
        return
    if type(value) is not int or value < least:
        allowed = f"an int of at least {least}{' or None' if optional else ''}"
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}")
    check_int(name, value)  # not too large


def is_finite(value: object) -> bool:
    """Whether a value is a number, finite and not too large to compute with.

    >>> is_finite(0.5), is_finite(float("nan")), is_finite(10**400), is_finite("1")
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST


def check_number(
    name: str, value: object, least: float = -math.inf, above: float = -math.inf
) -> float:
    """Return a finite number, at least ``least`` and above ``above``; raise for any other value.

    >>> check_number("gamma", "0.1")
    Traceback (most recent call last):
    TypeError: gamma must be a number, got '0.1'
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        is_word = isinstance(value, str) and re.fullmatch(r"[+-]?\d+e-?\d+", value, re.IGNORECASE)
        hint = " (YAML reads it as text: write 1.0e-4, not 1e-4)" if is_word else ""
        raise TypeError(f"{name} must be a number, got {shown(value)}{hint}")
    if not is_finite(value):
        raise ValueError(f"{name} must be finite and at most {LARGEST} if it is an int")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    if value <= above:
        raise ValueError(f"{name} must be above {above}, got {shown(value)}")
    return value


def check_needed(needed: str, **given: tuple[object, object]) -> None:
    """Raise for an argument that has no effect without another one.

    Args:
        needed: The other argument with its value, as code.
        given: The value and the default of each argument.

    >>> check_needed('log="norms"', depth=(2, 2), moments=(True, False))
    Traceback (most recent call last):
    ValueError: moments=True has no effect without log="norms"
    """
    for name, (value, default) in given.items():
        if type(value) is not type(default) or value != default:
            raise ValueError(f"{name}={shown(value)} has no effect without {needed}")


def check_numbers(name: str, value: object) -> None:
    """Raise unless a value is a list or tuple of finite numbers."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of numbers, got {shown(value)}")
    for i, number in enumerate(value):
        check_number(f"{name}[{i}]", number)


def check_choice(name: str, value: object, allowed: Sequence[str], others: str = "") -> None:
    """Raise unless a value is one of the allowed words.

    Args:
        name: The argument.
        value: The value.
        allowed: The words.
        others: The other values that the argument may have, for the message.

    >>> check_choice("swap", "move", ["auto", "copy"])
    Traceback (most recent call last):
    ValueError: swap must be one of auto, copy, got 'move'
    >>> check_choice("resume", "nevr", ["allow", "never"])
    Traceback (most recent call last):
    ValueError: resume must be one of allow, never, got 'nevr'; did you mean 'never'?
    >>> check_choice("warm_up", "linear", ["fast"], "an int of at least 0")
    Traceback (most recent call last):
    ValueError: warm_up must be an int of at least 0 or 'fast', got 'linear'
    """
    if not isinstance(value, str) or value not in allowed:
        close = closest(value, allowed) if isinstance(value, str) else None
        hint = "" if close is None else f"; did you mean {close!r}?"
        words = f"{others} or {allowed[0]!r}" if others else f"one of {', '.join(allowed)}"
        raise ValueError(f"{name} must be {words}, got {shown(value)}{hint}")


def check_dict(name: str, value: object) -> dict[str, Any] | None:
    """Return a copy of a dict with strings as keys; None stays None."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict or None, got {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} must have strings as keys, got {shown(key)}")
    return dict(value)


def check_function(name: str, value: object) -> None:
    """Raise unless a value is callable or None."""
    if not (value is None or callable(value)):
        raise TypeError(f"{name} must be a function or None, got {shown(value)}")


def check_object(hook: object) -> None:
    """Raise for a class in the place of a hook.

    >>> check_object(dict)
    Traceback (most recent call last):
    TypeError: dict is a class; pass an object: dict(...)
    """
    if inspect.isclass(hook):
        raise TypeError(f"{hook.__name__} is a class; pass an object: {hook.__name__}(...)")


def check_path(name: str, value: object) -> str | None:
    r"""Return a path as a string, without ``file://``, the home directory for ``~``; None stays.

    >>> check_path("out_dir", "a\0b")
    Traceback (most recent call last):
    ValueError: out_dir must be a path without a null character, got 'a\x00b'
    """
    if value is None:
        return None
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a path or None, got {shown(value)}")
    if "\0" in path:
        raise ValueError(f"{name} must be a path without a null character, got {shown(path)}")
    return os.path.expanduser(path.removeprefix("file://"))
