"""Error messages show any value, shortened."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from lightning_hooks.utils.arguments import shown


def repeated(make: Any) -> Any:
    """Return a structure of 10 ** 31 references to the same text."""
    value: Any = "ha"
    for _ in range(31):
        value = make([value] * 10)
    return value


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda parts: OrderedDict(enumerate(parts)),
        lambda parts: dict(enumerate(parts)),
    ],
    ids=["list", "tuple", "OrderedDict", "dict"],
)
def test_a_value_without_end_is_cut(make: Any) -> None:
    text = shown(repeated(make))
    assert len(text) < 500
    assert text.endswith("...")


def test_a_config_is_shown_in_its_own_order() -> None:
    config = {"type": "x", "interval": 1, "by_epoch": False, "args": [{"b": 1, "a": (2,)}]}
    assert shown(config) == repr(config)
    assert shown(OrderedDict(config)) == repr(config)
