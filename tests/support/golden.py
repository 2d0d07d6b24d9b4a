"""Read recorded numbers of other libraries and compare ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.paths import GOLDEN

__all__ = ["assert_close", "recorded"]


def recorded(name: str) -> Any:
    """Return the content of ``tests/golden/<name>.json``."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def assert_close(ours: Any, theirs: Any, rel: float = 1e-6, absolute: float = 1e-9) -> None:
    """Compare nested values, floats approximately because kernels differ between machines."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_close(ours[key], theirs[key], rel, absolute)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other, rel, absolute)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=rel, abs=absolute)
    else:
        assert ours == theirs
