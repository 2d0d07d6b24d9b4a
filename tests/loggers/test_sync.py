"""With several ranks, a line has rank 0's values, or the means with ``sync=True``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import TensorboardLoggerHook, TextLoggerHook
from support.logs.text import read_logs
from support.processes import read_ranks, run_job
from support.training import fit


@pytest.mark.parametrize("sync", [False, True])
def test_one_rank_has_the_same_lines(tmp_path: Path, sync: bool) -> None:
    fit(tmp_path, TextLoggerHook(interval=2, sync=sync), TensorboardLoggerHook(sync=sync), val=1)
    rows, _ = read_logs(tmp_path)
    assert [row["mode"] for row in rows] == ["train", "train", "val"]


def test_an_argument_that_is_no_bool_is_refused() -> None:
    with pytest.raises(TypeError, match="sync"):
        TextLoggerHook(sync="mean")  # type: ignore[arg-type]


def test_two_ranks(tmp_path: Path) -> None:
    run_job("log_sync", tmp_path)
    first, second = read_ranks(tmp_path)

    def lines(rank: Any, name: str) -> list[Any]:
        keys = ("loss", "own", "reduced", "of_epoch")
        return [{k: row[k] for k in keys if k in row} for row in rank["lines"][name]]

    def expected(value: float) -> list[Any]:
        line = {"loss": value, "own": value, "reduced": 2.0}
        return [line, line, {}, {"of_epoch": value}]

    print(lines(first, "rank 0"), lines(first, "sync"), first["calls"])
    assert lines(first, "rank 0")[:2] == expected(1.0)[:2]
    assert lines(first, "sync")[:2] == lines(second, "sync")[:2] == expected(2.0)[:2]
    # the line after the file of iteration 3 has the values of both ranks from before the file
    assert first["resumed"][0] == second["resumed"][0] == first["lines"]["sync"][1]
    assert first["lines"]["rank 0"][-1] == {"of_epoch": 1.0}
    assert first["lines"]["sync"][-1] == {"of_epoch": 2.0}
    # two lines of two iterations and the values of the epoch
    assert first["calls"] == second["calls"] == 3
    assert first["epochs"] == second["epochs"] == 1, "both ranks have the score of rank 0"
    assert first["score"] == second["score"]
