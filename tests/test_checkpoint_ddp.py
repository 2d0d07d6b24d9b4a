"""Two real processes save together, in the background too, and go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lightning_hooks import manifest

HERE = Path(__file__).parent


def test_two_ranks_save_and_go_on_as_if_they_had_not_ended(tmp_path):
    paths = [str(HERE.parent), str(HERE), str(HERE / "golden")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
    script = [sys.executable, "-W", "ignore", str(HERE / "checkpoint_ddp_job.py"), str(tmp_path)]
    done = subprocess.run(script, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert ranks[0] == ranks[1]
    assert ranks[0]["weights"][0] == ranks[0]["weights"][1]
    for name, best in zip(("whole", "parts"), ranks[0]["best"], strict=True):
        assert best == str(tmp_path / name / "best_acc_epoch_4.pth")
        found = {path.name for path in (tmp_path / name).glob("*_*.pth")}
        assert found == {"epoch_4.pth", "epoch_5.pth", "best_acc_epoch_4.pth"}
        entries = manifest.read(str(tmp_path / name))
        assert {entry.name for entry in entries} == found
        assert len({entry.run for entry in entries}) == 1
    assert ranks[0]["last"] == str(tmp_path / "parts" / "epoch_5.pth")
