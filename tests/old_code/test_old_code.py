"""Hooks of real packages of the mmcv 1.x era, in their original files, behave as under mmcv.

``make old-code`` downloads the packages from PyPI and runs every hook of ``cases.py`` twice: under
the stand-in's runners, and in an adapter in a ``lightning.Trainer``. The results (rates, weights,
files, calls of the model) must equal the results under real mmcv's runner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import CASES
from record_old_code import run

from support.golden import assert_close
from support.pypi import skipped_without_pypi
from support.standin import needs_lite

HANDFUL = (
    "mmdet.SetEpochInfoHook",
    "mmdet.YOLOXLrUpdaterHook",
    "mmdet.YOLOXModeSwitchHook",
    "mmdet.ExpMomentumEMAHook",
    "mmdet.DistOptimizerHook",
)
"""The hooks run by ``make test``, all from one package."""

GOLDEN = Path(__file__).parents[1] / "golden" / "old_code.json"


def run_or_skip(which: str, *cases: str) -> dict[str, Any]:
    with skipped_without_pypi():
        return run(which, *cases)


@pytest.fixture(scope="module", params=["runner", "trainer"])
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"in_trainer": request.param == "trainer", "of": run_or_skip(request.param)}


def _scores(lines: list[str]) -> list[str]:
    about_files = ("Now best checkpoint", "The previous best checkpoint")
    told = [line for line in lines if not line.startswith(about_files)]
    return [line.partition(": saved ")[0].rstrip(".") for line in told]


def check(case: str, results: dict[str, Any], *, in_trainer: bool) -> None:
    """Compare the results of a hook with the results under real mmcv."""
    want = json.loads(GOLDEN.read_text())["cases"][case]
    if case not in results:
        assert not CASES[case].in_trainer
        return
    found = results[case]
    assert "error" not in found, found["error"]
    assert "error" not in want
    if in_trainer:  # in a Trainer, one line has the score and the best file
        found["lines"], want["lines"] = _scores(found["lines"]), _scores(want["lines"])
    for ours, theirs in zip(found["notes"], want["notes"], strict=True):
        if in_trainer:  # in a Trainer, the log buffer drops an epoch after its last line
            ours.pop("log", None), theirs.pop("log", None)
        assert ours["at"] == theirs["at"]
        assert ours["lr"] == theirs["lr"]  # plain Python: to the last bit
    assert_close(found, want)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_hook_does_what_it_did(case: str, results: dict[str, Any]) -> None:
    check(case, results["of"], in_trainer=results["in_trainer"])


@needs_lite
def test_a_handful_of_hooks_do_what_they_did() -> None:
    results = run_or_skip("trainer", *HANDFUL)
    assert results.keys() == {*HANDFUL}
    for case in HANDFUL:
        check(case, results, in_trainer=True)
