"""Stateful hooks by strategy and kind of checkpoint: as in a single process, and after a resume.

The hooks schedule rates, betas and weight decay by step, clip by the history of norms, keep three
averages, skip a step, and write the best file and the text log. All jobs run in real processes.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from support.jobs.stateful_hooks import ROWS, type_of
from support.processes import run_job

QUICK = ("tp, directory",)
"""A row missing in other quick tests."""
rows = [pytest.param(row, marks=() if row in QUICK else pytest.mark.slow) for row in ROWS]


def trained(out: Path, row: str, ranks: int) -> list[dict[str, Any]]:
    """Return the results of each rank of a job."""
    run_job("stateful_hooks", out, row, ranks=ranks)
    return [torch.load(out / f"found{rank}.pt", weights_only=True) for rank in range(ranks)]


Runs = tuple[list[dict[str, Any]], dict[str, Any], torch.dtype]


@pytest.fixture(scope="module", name="single")
def train_single(tmp_path_factory: Any) -> Any:
    """Return a cached function that trains in a single process with a given parameter dtype."""

    @functools.cache
    def run(kind: torch.dtype) -> dict[str, Any]:
        row = "one in float32" if kind == torch.float32 else "one"
        return trained(tmp_path_factory.mktemp("one"), row, 1)[0]

    return run


@pytest.fixture(scope="module", params=rows, name="runs")
def train(request: Any, single: Any, tmp_path_factory: Any) -> Runs:
    """Return the results of each rank, the results of a single process, and the parameter dtype."""
    row = request.param
    data, shares = ROWS[row]
    ranks = trained(tmp_path_factory.mktemp("row"), row, data * shares)
    return ranks, single(type_of(row)), type_of(row)


def test_hooks_do_as_in_one_process(runs: Runs) -> None:
    ranks, one, kind = runs
    close = {"rtol": 1e-6, "atol": 1e-9} if kind == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    for rank in ranks:
        for run in ("whole", "cut", "resumed"):
            assert rank[run]["best"] == one[run]["best"]
            assert rank[run]["steps"] == one[run]["steps"]
            assert rank[run]["groups"] == one[run]["groups"]
            for key in ("averages", "raw"):
                torch.testing.assert_close(rank[run][key], one[run][key], **close)
    for row, expected in zip(ranks[0]["resumed"]["log"], one["resumed"]["log"], strict=True):
        assert row == pytest.approx(expected, abs=2e-5)  # rounded to 5 digits


def test_a_resumed_run_is_the_whole_run_to_the_last_bit(runs: Runs) -> None:
    ranks, one, _ = runs
    for rank in (one, *ranks):
        whole, resumed = rank["whole"], rank["resumed"]
        assert whole["groups"][6:] == resumed["groups"]
        assert (whole["steps"], whole["best"]) == (resumed["steps"], resumed["best"])
        for key in ("averages", "raw"):
            torch.testing.assert_close(resumed[key], whole[key], rtol=0, atol=0)
        assert whole.get("log") == resumed.get("log")
