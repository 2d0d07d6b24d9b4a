"""Resumed schedules of sharded parameters in two processes keep the initial rates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from support.processes import run_job


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_resume_has_the_rates_of_the_whole_run(tmp_path: Path, kind: str) -> None:
    run_job("sharded_rates", tmp_path, kind)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"found{rank}.pt", weights_only=True)
        assert found["cut"] == found["whole"][:6]
        assert found["resumed"] == found["whole"][6:]
