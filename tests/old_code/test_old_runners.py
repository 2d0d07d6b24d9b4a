"""Runners of real packages with custom loops behave as under real mmcv.

``make old-code`` downloads the packages from PyPI and imports each runner from the original file.
The tests compare calls, counters, rates, weights, files and log rows of a run and of a resumed run.
"""

from __future__ import annotations

from typing import Any

import pytest
from record_old_code import run

from support.golden import assert_close, recorded
from support.pypi import skipped_without_pypi

RECORDED = recorded("old_runners")["cases"]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    with skipped_without_pypi():
        return run("runner", job="run_runners.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_runner_with_its_own_loop_does_what_it_did(name: str, results: dict[str, Any]) -> None:
    assert_close(results[name], RECORDED[name])
