"""A fit logs to the run or experiment opened by the program, even in spawned processes."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from support.logs.trackers import history, points, read_wandb
from support.processes import Forks, environment

FIT = """
import sys, warnings
from lightning_hooks import MlflowLoggerHook, WandbLoggerHook
from support.training import TinyModule, make_loader, make_trainer

warnings.filterwarnings("default", "TrackioLoggerHook")

def fit(hook):
    strategy = "ddp_notebook" if "forked" in sys.argv else "ddp_spawn"
    trainer = make_trainer("fit", hook, max_epochs=1, strategy=strategy, devices=1)
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

EXPERIMENT = """
import mlflow
from lightning_hooks import MlflowLoggerHook
from support.training import TinyModule, make_loader, make_trainer

mlflow.set_experiment("mine")
hook = MlflowLoggerHook(interval=2, timeout=60, log_model=False, strict=True)
make_trainer("fit", hook, max_epochs=1).fit(TinyModule(), make_loader(4))
(run,) = mlflow.search_runs(experiment_names=["mine"], output_format="list")
assert "train/loss" in run.data.metrics, run
"""

TRACKIO = f"""{FIT.replace("import MlflowLoggerHook, WandbLoggerHook", "import TrackioLoggerHook")}
import trackio

if __name__ == "__main__":
    run = trackio.init(project="mine", name="opened")
    fit(TrackioLoggerHook(interval=2, timeout=60, strict=True))
    run.finish()
"""


def run(program: str, folder: Path, how: str, **variables: str) -> str:
    """Run a program; return the output."""
    script = folder / "program.py"
    script.write_text(program)
    return Forks([str(script), how], [environment(**variables)], folder).wait()


ways = pytest.mark.parametrize(
    "how", ["found", "forked", pytest.param("passed", marks=pytest.mark.slow)]
)


@ways
def test_mlflows_open_run(tmp_path: Path, empty_db: Path, how: str) -> None:
    pytest.importorskip("mlflow")
    shutil.copy(empty_db, tmp_path / "store.db")
    run(MLFLOW, tmp_path, how)
    rows = points(tmp_path / "store.db")
    assert ["train/loss" in rows[step] for step in (2, 4)] == [True, True]
    assert "val/val_loss" in rows[5]
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("select count(*) from runs").fetchone() == (1,)
    assert [file.name for file in tmp_path.rglob("*.db")] == ["store.db"]


def test_mlflows_experiment_of_the_program(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    run(EXPERIMENT, tmp_path, "found", MLFLOW_EXPERIMENT_NAME="of the environment")
    assert not (tmp_path / "fit/mlflow.db").exists()


@ways
def test_wandbs_open_run(tmp_path: Path, how: str) -> None:
    pytest.importorskip("wandb")
    run(WANDB, tmp_path, how)
    rows = history(read_wandb(tmp_path)).values()
    assert ["train/loss" in row for row in rows] == [True, True, False]
    assert not [*(tmp_path / "fit").rglob("*.wandb")]


def test_a_run_that_no_spawned_process_can_take_is_named(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    said = run(TRACKIO, tmp_path, "found", TRACKIO_DIR=str(tmp_path / "trackio"))
    reason = "the program's open run cannot be handed to a spawned process"
    assert f"TrackioLoggerHook: {reason}, which begins a run of its own" in said
    with sqlite3.connect(tmp_path / "trackio/mine.db") as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master")]
        if "metrics" in tables:  # the client's thread may have had no time to make the table
            assert connection.execute("select count(*) from metrics").fetchone() == (0,)
