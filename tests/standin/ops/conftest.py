"""A fixture with the operators, imported as projects import mmcv's operators."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch


@pytest.fixture
def ops() -> Any:
    torch.manual_seed(0)
    return importlib.import_module("mmcv.ops")
