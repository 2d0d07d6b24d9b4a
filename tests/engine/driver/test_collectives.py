"""The number of collectives by event, counted in two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT
from support.processes import read_ranks, run_job

HEADING = "## What the ranks do together"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> list[dict[str, dict[str, float]]]:
    out: Path = tmp_path_factory.mktemp("collectives")
    run_job("collectives", out)
    return read_ranks(out)


def table() -> dict[str, str]:
    """Return the table of docs/architecture.md: the collectives by the event."""
    chapter = (ROOT / "docs" / "architecture.md").read_text().split(HEADING)[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in chapter.splitlines() if line.startswith("|")]
    return {event.strip(): calls.strip() for event, calls in cells[2:]}


def test_the_collectives_are_those_of_the_table(ranks: Any) -> None:
    for rank in ranks:
        calls = {
            event: ", ".join(f"{n:g} {name}" for name, n in found.items() if name != "bytes")
            or "none"
            for event, found in rank.items()
        }
        assert calls == table()


def test_only_rank_0_gets_the_random_states_of_all(ranks: Any) -> None:
    for rank in ranks:
        assert rank["save"]["gather_object"] == 1
        assert "all_gather_object" not in rank["save"]


def test_buffers_are_synced_for_a_file_in_one_collective(ranks: Any) -> None:
    for rank in ranks:
        synced, plain = rank["save, sync_buffer=True"], rank["save"]
        assert synced["all_reduce"] == plain["all_reduce"] + 1
        assert sum(synced.values()) - synced["bytes"] == sum(plain.values()) - plain["bytes"] + 1
