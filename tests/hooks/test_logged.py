"""A hook that only logs values warns if no logger is attached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    Hook,
    HookAdapter,
    SystemMetricsHook,
    TextLoggerHook,
    ThroughputHook,
    WatchHook,
)
from support.training import NoValidation, make_loader, make_trainer

HOOKS: dict[str, Callable[[], Hook]] = {
    "SystemMetricsHook": SystemMetricsHook,
    "ThroughputHook": lambda: ThroughputHook(warmup_iters=0),
    "WatchHook": lambda: WatchHook(log="norms"),
}


def said(folder: Path, caplog: pytest.LogCaptureFixture, *hooks: Any) -> list[str]:
    """Train; return the messages about a missing logger."""
    with caplog.at_level(logging.WARNING):
        make_trainer(folder, *hooks, logger=False).fit(NoValidation(), make_loader(2))
    return [text for text in caplog.messages if "logger hook" in text]


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("name", HOOKS)
def test_values_that_nothing_logs_are_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, adapted: bool
) -> None:
    pytest.importorskip("psutil")
    hook = HOOKS[name]()
    (line,) = said(tmp_path, caplog, HookAdapter([hook]) if adapted else hook)
    assert line.startswith(f"{name}: the Trainer has no logger hook, so the values are in no log")
    assert "add TextLoggerHook(), or LightningLoggerHook()" in line


@pytest.mark.parametrize("name", HOOKS)
def test_with_a_logger_there_is_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    pytest.importorskip("psutil")
    assert not said(tmp_path, caplog, HOOKS[name](), TextLoggerHook(interval=1))
