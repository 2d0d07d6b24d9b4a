"""Clients that a program has put into ``sys.modules`` itself."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

import pytest

from lightning_hooks.loggers.trackers.packages import require


def test_a_module_without_a_spec_counts_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "some_client", MagicMock())
    require("some_client", "Mine")


def test_a_module_that_is_blocked_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "some_client", None)
    with pytest.raises(ImportError, match="Mine needs some_client"):
        require("some_client", "Mine")
