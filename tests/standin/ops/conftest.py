"""The operators as projects import them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture
def ops() -> Any:
    return importlib.import_module("mmcv.ops")
