"""Hooks of MMEngine, mmdet 3.x and detectron2 behave as in their original trainers.

``make old-code`` downloads the libraries from PyPI. The libraries' hooks, in the original files,
run in an adapter in a ``lightning.Trainer``; so do the dialect's hooks of detectron2's names, and
fvcore's parts. Rates, weights, metrics, scalars, log lines and files must equal the recorded
results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import run_detectron2
import run_events
import run_fvcore
import run_mmengine
from record_dialects import run

from support.golden import assert_close
from support.pypi import skipped_without_pypi

pytestmark = pytest.mark.slow
GOLDEN = Path(__file__).parents[1] / "golden" / "dialects.json"
HOSTED = [*run_mmengine.CASES, *run_detectron2.CASES]
OURS = [*run_detectron2.CASES, *run_events.CASES, *run_fvcore.CASES]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    with skipped_without_pypi():
        return {way: run(way) for way in ("trainer", "ours")}


@pytest.mark.parametrize(
    ("way", "case"),
    [
        *(("trainer", case) for case in HOSTED),
        *(("ours", case) for case in OURS),
    ],
)
def test_the_hook_does_what_it_does_there(way: str, case: str, results: dict[str, Any]) -> None:
    want, found = json.loads(GOLDEN.read_text())["cases"][case], results[way][case]
    assert "error" not in found, found["error"]
    assert_close(found, want)
