"""An error on one of two ranks ends the other rank, whose error names the first error."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import Job, read_ranks


@pytest.mark.parametrize(("rank", "point"), [(0, "after_train_iter"), (1, "before_train_epoch")])
def test_the_first_error_is_named_on_the_other_rank(rank: int, point: str, tmp_path: Path) -> None:
    codes = Job("failing_rank", tmp_path, rank, point).wait_for_all(100)
    assert 0 not in codes
    found = read_ranks(tmp_path)
    first, other = found[rank], found[1 - rank]
    assert first["error"] == "KeyError"
    (note,) = first["notes"]
    assert note.startswith(f"in hook Fails.{point} (epoch 1, iter ")
    assert other["error"] == "RuntimeError"  # the closed connection
    assert other["notes"] == [
        f"the first error was on rank {rank}: KeyError: \"the label 'cat'\", {note}"
    ]
    assert other["time"] - first["time"] < 30
