"""Real signals while the average is in the model: raw weights stay raw, in memory and in files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import TinyModule, make_loader, make_trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from test_ema import equal

from lightning_hooks import EMAHook

HERE = Path(__file__).parent
CASES = [("SIGTERM", "validation_step"), ("SIGINT", "on_validation_start")]


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: Any) -> dict[tuple[str, str], Path]:
    """Run all cases at once, each in its own process."""
    paths = [str(HERE.parent), str(HERE)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
    running = []
    for case in CASES:
        out = tmp_path_factory.mktemp("-".join(case))
        script = [sys.executable, str(HERE / "ema_job.py"), str(out), *case]
        with (out / "stderr").open("w") as stderr:
            process = subprocess.Popen(script, env=env, stderr=stderr, stdout=stderr)
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
    for name in ("full", "weights", "look", "broken"):  # written swapped, and when it broke off
        checkpoint = torch.load(out / f"{name}.ckpt", weights_only=True)
        assert equal(checkpoint["state_dict"], found["raw"]), name
        assert equal(checkpoint["ema_state_dict"], found["ema"]), name


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_a_strategy_that_shards_is_refused_before_training(tmp_path: Path) -> None:
    class Module(TinyModule):
        def configure_model(self) -> None:
            pass

        def on_fit_start(self) -> None:
            raise AssertionError("too late")

    try:
        trainer = make_trainer(tmp_path, EMAHook(), strategy=ModelParallelStrategy())
        with pytest.raises(ValueError, match="EMAHook does not work with ModelParallelStrategy"):
            trainer.fit(Module(), make_loader())
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
