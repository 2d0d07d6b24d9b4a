"""How often a value may change file on its way through the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.walks import Walk, config, quiet_step, save, text_log


@pytest.mark.parametrize(("walk", "most"), [(config, 30), (text_log, 20), (save, 40)])
def test_a_walk_is_short(walk: Callable[[Path], Walk], most: int, tmp_path: Path) -> None:
    found = walk(tmp_path)
    walked = "\n".join(map(str, found.arrivals))
    assert found.changes <= most, f"{found.name} changes file too often:\n{walked}"
    across = [str(call) for call in found.calls if call.crosses]
    assert len(across) <= most, "\n".join(across)


def test_a_walk_to_the_log_is_more_than_one_without(tmp_path: Path) -> None:
    log, quiet = text_log(tmp_path), quiet_step(tmp_path)
    lines = [len(file.read_text().splitlines()) for file in tmp_path.glob("*.log.json")]
    assert min(lines) >= 2
    assert 0 < quiet.changes < log.changes
    assert set(quiet.files) < set(log.files)
