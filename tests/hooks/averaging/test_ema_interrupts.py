"""Real signals while the average is in the model: raw weights stay raw, in memory and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from support.probes import equal
from support.processes import Job

CASES = [("SIGTERM", "validation_step"), ("SIGINT", "on_validation_start")]


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: Any) -> dict[tuple[str, str], Path]:
    """Run all cases at once, each in its own process."""
    outs = {case: tmp_path_factory.mktemp("-".join(case)) for case in CASES}
    jobs = [Job("ema", out, *case, ranks=1) for case, out in outs.items()]
    for out, job in zip(outs.values(), jobs, strict=True):
        printed = job.wait(timeout=120, check=False)  # the signal makes its exit code
        assert (out / "found.pt").exists(), printed[-3000:]
    return outs


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
