"""After a signal while the average is in the model, memory and files have the raw weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from support.probes import equal
from support.processes import Job


@pytest.mark.parametrize(
    ("signal", "where"),
    [
        ("SIGTERM", "validation_step"),
        pytest.param("SIGINT", "on_validation_start", marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_the_raw_weights_everywhere(
    tmp_path: Path, signal: str, where: str
) -> None:
    printed = Job("ema", tmp_path, signal, where, ranks=1).wait(timeout=120, check=False)
    assert (tmp_path / "found.pt").exists(), printed[-3000:]
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    assert found["epoch"] == 1
    assert equal(found["after"], found["raw"])
    assert not equal(found["ema"], found["raw"])
    # saved with the average in the model, and by callbacks before and after the hook at the signal
    for name in ("full", "weights", "before", "after", "last", "broken"):
        checkpoint = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert equal(checkpoint["current_model_state"], found["raw"]), name
        assert equal(checkpoint["state_dict"], found["ema"]), name
