"""Convert values and errors to plain Python types and texts, without passwords and keys."""

from __future__ import annotations

import re
import reprlib
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

__all__ = [
    "USERINFO",
    "averageable",
    "describe",
    "packed",
    "plain",
    "plain_groups",
    "without_secrets",
]


def plain(value: Any) -> Any:
    """Return a value in types for ``torch.load(weights_only=True)``.

    numpy's scalars and arrays become numbers and lists, sets lists, mappings dicts, and objects of
    all other types (paths, classes) their ``str``.

    >>> plain({"score": np.float64(0.5), "ids": np.arange(2), "type": dict})
    {'score': 0.5, 'ids': [0, 1], 'type': "<class 'dict'>"}
    """
    if isinstance(value, (np.generic, np.ndarray)):  # first: np.float64 is a float, np.str_ a str
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.Tensor)):
        return value
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, (list, set, frozenset)):
        return [plain(v) for v in value]
    if callable(getattr(value, "items", None)) and not isinstance(value, type):
        return {plain(k): plain(v) for k, v in value.items()}
    return str(value)


_SECRET = re.compile(
    r"token|key|passw|passphrase|pwd|secret|credential|cookie|authorization|(^|[_-])auth($|[_-])"
)
USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")
"""The user and the password of a URL."""


def without_secrets(value: Any) -> Any:
    """Return arguments without passwords and keys, which must not be in files that users share.

    >>> without_secrets({"project": "digits", "settings": {"api_key": "1234", "mode": "offline"}})
    {'project': 'digits', 'settings': {'mode': 'offline'}}
    >>> without_secrets({"uri": "http://me:1234@host/x", "hosts": [{"auth": "1234"}]})
    {'uri': 'http://host/x', 'hosts': [{}]}
    """
    if isinstance(value, str):
        return USERINFO.sub("", value)
    if isinstance(value, (list, tuple)):
        return [*map(without_secrets, value)]
    if not isinstance(value, dict):
        return value
    return {
        name: without_secrets(each)
        for name, each in value.items()
        if not _SECRET.search(str(name).lower())
    }


def describe(error: Exception) -> str:
    r"""Return an error of a client on a single line, without tokens and passwords.

    >>> describe(OSError("http://me:1234@host/x\nis down"))
    'OSError: http://host/x is down'
    """
    text = USERINFO.sub("", " ".join(f"{type(error).__name__}: {error}".split()))
    return re.sub(r"\bhf_\w{8,}", "hf_...", text)[:500]


def plain_groups(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state with Python numbers in the groups; old hooks set numpy numbers.

    >>> plain_groups({"param_groups": [{"weight_decay": np.float64(0.1), "params": [0]}]})
    {'param_groups': [{'weight_decay': 0.1, 'params': [0]}]}
    """
    groups = [
        {k: v.item() if isinstance(v, np.generic) else v for k, v in group.items()}
        for group in state.get("param_groups", ())
    ]
    return {**state, "param_groups": groups} if groups else state


def averageable(key: str, value: Any) -> Any:
    """Return a value for an average: a number or a tensor; an array of size 1 as a number.

    Raises:
        TypeError: for a value of another type, or complex numbers.
        OverflowError: for a number too large for a float.

    >>> averageable("loss", 0.5), averageable("loss", np.array([2]))
    (0.5, 2)
    """
    if isinstance(value, torch.Tensor) and not value.is_complex():
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, Real):
        try:
            float(value)
        except OverflowError:
            raise OverflowError(
                f"log_buffer.update(): {key!r} is too large for a float, so it cannot be averaged; "
                "put in its logarithm, or leave it out"
            ) from None
        return value
    raise TypeError(
        f"log_buffer.update(): {key!r} must be a number or a 0-d tensor, to be averaged, got "
        f"{reprlib.repr(value)} of type {type(value).__name__}; what is logged as it is goes into "
        "log_buffer.output"
    )


def packed(numbers: list[Any]) -> torch.Tensor:
    """Return numbers as an int64 tensor, or as float64 if a number is no 64-bit integer."""
    is_integral = all(isinstance(n, Integral) and -(2**63) <= int(n) < 2**63 for n in numbers)
    return torch.tensor(numbers, dtype=torch.int64 if is_integral else torch.float64)
