"""An old project, unchanged, does under the stand-in what it did under real mmcv.

``old_project/`` has what such projects have: configs with bases and ``custom_imports``, hooks,
policies, loggers and checkpoint hooks of their own, a runner with ``run_iter``,
``save_checkpoint`` and ``resume``, an optimizer constructor, a ``train.py`` with ``DictAction``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_old_project import TRAIN
from record_old_script import results, run
from test_standin_script import COMMAND, NUMBER, assert_close

GOLDEN = json.loads((Path(__file__).parent / "golden" / "old_project.json").read_text())["cases"]


@pytest.mark.parametrize("case", GOLDEN)
def test_the_project_does_what_it_did(case: str, tmp_path: Path) -> None:
    want = GOLDEN[case]
    run(COMMAND, want["runs"], str(tmp_path), TRAIN)
    found = json.loads(json.dumps(results(str(tmp_path))))
    for ours, theirs in zip(found["notes"], want["notes"], strict=True):
        for key in ("at", "of", "lr", "momentum", "training"):  # plain Python: to the last bit
            assert ours[key] == theirs[key], (theirs["at"], key)
    assert_close(found["notes"], want["notes"])
    assert found["latest"] == want["latest"]
    assert_close(found["files"], want["files"])
    assert_close(found["json"], want["json"], absolute=1e-4)
    assert [NUMBER.sub("x", line) for line in found["log"]] == [
        NUMBER.sub("x", line) for line in want["log"]
    ]
