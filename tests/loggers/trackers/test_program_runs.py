"""A fit in spawned processes logs to the run that the program has opened."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.logs.trackers import history, points, read_wandb
from support.processes import environment

FIT = """
import sys
from lightning_hooks import MlflowLoggerHook, WandbLoggerHook
from support.training import TinyModule, make_loader, make_trainer

def fit(hook):
    trainer = make_trainer("fit", hook, max_epochs=1, strategy="ddp_spawn", devices=1)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
"""

MLFLOW = f"""{FIT}
import mlflow

if __name__ == "__main__":
    mlflow.set_tracking_uri("sqlite:///store.db")
    mlflow.set_experiment("mine")
    with mlflow.start_run() as run:
        given = {{"run": run}} if "passed" in sys.argv else {{}}
        fit(MlflowLoggerHook(interval=2, timeout=60, log_model=False, strict=True, **given))
"""

WANDB = f"""{FIT}
import wandb

if __name__ == "__main__":
    run = wandb.init(project="mine", mode="offline", settings={{"console": "off"}})
    given = {{"run": run}} if "passed" in sys.argv else {{}}
    fit(WandbLoggerHook(interval=2, timeout=60, strict=True, **given))
    run.finish()
"""


def run(program: str, folder: Path, how: str) -> None:
    script = folder / "program.py"
    script.write_text(program)
    command = [sys.executable, "-W", "ignore", str(script), how]
    subprocess.run(command, env=environment(), cwd=folder, check=True, timeout=240)


ways = pytest.mark.parametrize("how", ["found", pytest.param("passed", marks=pytest.mark.slow)])


@ways
def test_mlflows_open_run(tmp_path: Path, how: str) -> None:
    pytest.importorskip("mlflow")
    run(MLFLOW, tmp_path, how)
    rows = points(tmp_path / "store.db")
    assert ["train/loss" in rows[step] for step in (2, 4)] == [True, True]
    assert "val/val_loss" in rows[5]
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("select count(*) from runs").fetchone() == (1,)
    assert [file.name for file in tmp_path.rglob("*.db")] == ["store.db"]


@ways
def test_wandbs_open_run(tmp_path: Path, how: str) -> None:
    pytest.importorskip("wandb")
    run(WANDB, tmp_path, how)
    rows = history(read_wandb(tmp_path)).values()
    assert ["train/loss" in row for row in rows] == [True, True, False]
    assert not [*(tmp_path / "fit").rglob("*.wandb")]
