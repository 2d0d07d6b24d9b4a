"""Real signals while the average is in the model: raw weights stay raw, in memory and in files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from support.probes import equal
from support.processes import environment, job_command

CASES = [("SIGTERM", "validation_step"), ("SIGINT", "on_validation_start")]


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: Any) -> dict[tuple[str, str], Path]:
    """Run all cases at once, each in its own process."""
    running = []
    for case in CASES:
        out = tmp_path_factory.mktemp("-".join(case))
        command = job_command("ema", out, *case)
        with (out / "stderr").open("w") as stderr:
            process = subprocess.Popen(command, env=environment(), stderr=stderr, stdout=stderr)
        running.append((case, out, process))
    for _, out, process in running:
        process.wait(timeout=120)
        assert (out / "found.pt").exists(), (out / "stderr").read_text()[-3000:]
    return {case: out for case, out, _ in running}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_signal_leaves_the_raw_weights_everywhere(broken_off: Any, case: Any) -> None:
    out = broken_off[case]
    found = torch.load(out / "found.pt", weights_only=True)
    assert found["epoch"] == 1
    assert equal(found["after"], found["raw"])
    assert not equal(found["ema"], found["raw"])
    # written swapped, and by callbacks before and after the hook when it broke off
    for name in ("full", "weights", "before", "after", "last", "broken"):
        checkpoint = torch.load(out / f"{name}.ckpt", weights_only=True)
        assert equal(checkpoint["current_model_state"], found["raw"]), name
        assert equal(checkpoint["state_dict"], found["ema"]), name
