"""Python without asserts and docstrings (-OO, which is more than -O)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

SCRIPT = """
from pathlib import Path

from lightning_hooks import *  # every name, so that every module is imported
from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, OptimizerHook, standin
from support.training import TinyModule, make_loader, make_trainer

hooks = [EMAHook(0.1), CheckpointHook(1), BestCheckpointHook("val_loss"), OptimizerHook()]
trainer = make_trainer(Path.cwd(), *hooks, max_epochs=2, enable_checkpointing=True)
trainer.fit(TinyModule(), make_loader(4), make_loader(1))
standin.install()
from mmcv.runner import EpochBasedRunner
print(sorted(path.name for path in Path.cwd().glob("*.pth")))
"""


@pytest.mark.slow  # Python has no bytecode of torch without docstrings at hand
def test_hooks_train_without_asserts_and_docstrings(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    run = subprocess.run(
        [sys.executable, "-OO", "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "'epoch_1.pth', 'epoch_2.pth'" in run.stdout
