"""A rank is killed while another one saves: the run ends with the reason, the folder resumes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lightning_hooks import CheckpointHook, newest_valid
from lightning_hooks.storage import manifest
from support import training
from support.jobs import dying_rank
from support.processes import Job


@pytest.mark.parametrize(
    "background", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sync", "background"]
)
def test_a_rank_that_dies_while_the_other_saves(tmp_path: Path, background: bool) -> None:
    codes = Job("dying_rank", tmp_path, background).wait_for_all(2 * dying_rank.TIMEOUT)
    assert codes[0] not in (0, None, -signal.SIGKILL), "it has ended by itself"
    assert codes[1] == -signal.SIGKILL
    found = json.loads((tmp_path / "rank0.json").read_text())
    assert found["seconds"] < dying_rank.TIMEOUT
    assert "closed by peer" in found["error"] or "reset by peer" in found["error"], found
    work = tmp_path / "work"
    # in the background the next epoch may have ended before the rank has
    whole = {"epoch_2.pth", "epoch_3.pth"} if background else {"epoch_2.pth"}
    assert Path(str(newest_valid(work))).name in whole, "the file was completed"
    assert list(work.glob("*.tmp")) == []
    hook = CheckpointHook(interval=1, max_keep_ckpts=2)
    module = training.NoValidation()
    training.fit(work, hook, module=module, max_epochs=dying_rank.EPOCHS, ckpt_path="last")
    assert module.trainer.current_epoch == dying_rank.EPOCHS
    assert [entry.name for entry in manifest.read(str(work))] == ["epoch_3.pth", "epoch_4.pth"]
