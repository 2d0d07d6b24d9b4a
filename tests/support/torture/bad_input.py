"""Draw bad input with hypothesis: odd values, and arguments of hooks."""

from __future__ import annotations

import inspect
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lightning_hooks import HOOKS

__all__ = ["arguments_of", "odd", "plausible", "tried", "tries"]

tried: Counter[str] = Counter()
"""How many inputs each property was tried with; printed at the end of the run."""


def tries(number: int = 200, *, data_file: bool = False) -> Any:
    """Try a property with a number of inputs, the same inputs in every run.

    ``BAD_INPUT_TRIES=20`` draws twenty times as many new inputs.

    Args:
        number: Number of inputs.
        data_file: Whether the input is a file that may be damaged or hostile. ``make torture`` sets
            ``DATA_FILE_TRIES=20000`` and draws as many new files.
    """
    times = int(os.environ.get("BAD_INPUT_TRIES", "1"))
    more = int(os.environ.get("DATA_FILE_TRIES", "0")) if data_file else 0
    return settings(
        max_examples=max(number * times, more),
        derandomize=times == 1 and not more,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


HUGE = 10**400  # no float is as large
NAMES = [
    "",
    "x",
    "../../x",
    "/dev/null/x",
    "a/../../b",
    "nul\0",
    "é" * 300,
    "{}",
    "{}_{}",
    "{0.real}",
    "%s",
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 1.0, 0.5, -0.5, 1e308, 1e-320, 10**30, HUGE, -HUGE),
    *(math.nan, math.inf, -math.inf, 2**63, 1j, np.int64(2), np.float32(0.5), torch.tensor(1.0)),
    *(*NAMES, "1", "1e-4", "auto", b"x"),
    *([], [0], [1], [-1], [1, 1], [2, 1], [math.nan], [HUGE], ["x"], [None], [[1]], (), (1, 2)),
    *({}, {"x": 1}, {"type": "x"}, {"max_norm": "1"}, {"backend": "petrel"}, {1: 2}, set(), {1}),
    *(int, len, object(), torch.zeros(2)),
]


def odd() -> Any:
    """Draw invalid values: other types, numbers out of every range, strange names."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    nested = st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=4), plain, max_size=2)
    return st.sampled_from(ODD) | plain | nested


def plausible(hint: str) -> Any:
    """Draw a value of the hinted type, in range or not."""
    found = {
        "int": st.sampled_from([*range(-2, 5), 10**30, HUGE]) | st.integers(),
        "float": st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 2.0, -0.5, 1e308]) | st.floats(),
        "bool": st.booleans(),
        "None": st.none(),
        "str": st.sampled_from(NAMES) | st.text(max_size=8),
        "list": st.lists(st.integers(-1, 4) | st.floats(0, 1) | st.text(max_size=2), max_size=3),
        "Sequence": st.lists(st.integers(-1, 4) | st.floats(0, 1), max_size=3),
        "dict": st.dictionaries(st.sampled_from(["max_norm", "norm_type", "x"]), odd()),
        "Mapping": st.dictionaries(st.sampled_from(["wait", "warmup", "active", "x"]), odd()),
        "Literal": st.sampled_from(["ignore", "average", "copy", "auto", "sample", "all"]),
    }
    fitting = [strategy for name, strategy in found.items() if name in hint]
    return st.one_of(*fitting) if fitting else st.none()


def arguments_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield a hook's arguments and type hints, including arguments passed on to a base class."""
    seen: set[str] = set()
    for cls in HOOKS.module_dict[name].__mro__:
        if "__init__" not in vars(cls) or not cls.__module__.startswith("lightning_hooks"):
            continue
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
        for one in parameters:
            if one.kind is not one.VAR_KEYWORD and one.name not in seen:
                seen.add(one.name)
                yield one.name, str(one.annotation)
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            return
