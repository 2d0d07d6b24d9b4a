"""An epoch that is resumed by another number of real processes, which have other sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.jobs.epoch_sums import KINDS
from support.processes import run_job


@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2), (2, 2)])
def test_a_line_tells_of_the_values_of_an_epoch_that_another_number_of_ranks_has_begun(
    before: int, now: int, tmp_path: Path
) -> None:
    for ranks in (before, now):  # of (1, 2), rank 0 alone had "first", and waited for the other
        run_job("epoch_sums", tmp_path, ranks, ranks=ranks, timeout=60)
    found = json.loads((tmp_path / "rank0.json").read_text())
    line = (
        "each of epoch 1: of the batches since the resume, the file has no values of the batches "
        "before"
    )
    assert found == dict.fromkeys(KINDS, [] if before == now else [line])
