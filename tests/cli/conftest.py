"""Checks of projects without a new interpreter for each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_hooks.cli.check import report
from support.processes import Forks


@pytest.fixture(autouse=True, scope="module")
def _forked_checks() -> Iterator[None]:
    """Fork the process of a check: a new interpreter imports torch and Lightning for seconds."""

    def run(command: list[str], *, stdout: Any, **streams: Any) -> None:
        printed = Forks(command[1:], [{**os.environ}], Path.cwd()).wait(check=False)
        stdout.write(printed.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": run}))
        yield
