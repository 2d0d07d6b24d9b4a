"""Faulty clients and killed processes lose no records."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.loggers.delivery.spool import StoredSpool
from support.logs import trackers
from support.logs.text import read_logs
from support.logs.trackers import (
    REAL_CLIENTS,
    history,
    points,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_visdom_log,
    read_wandb,
    series,
)
from support.paths import ROOT
from support.processes import environment

pytestmark = [pytest.mark.slow, *REAL_CLIENTS]


PACKAGES = ("clearml", "dvclive", "mlflow", "neptune", "tensorboard", "visdom", "wandb")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Run the job in a subprocess; return its folder and its report."""
    for package in PACKAGES:
        pytest.importorskip(package)
    root = tmp_path_factory.mktemp("bad")
    command = [sys.executable, "-m", "support.torture.bad_backends_job", str(root)]
    subprocess.run(command, cwd=root, env=environment(), check=True, timeout=550)
    return root, json.loads((root / "found.json").read_text())


def about(package: str, lines: list[str]) -> list[str]:
    return [line for line in lines if f"{package}loggerhook: " in line.lower()]


@pytest.mark.parametrize(
    ("trouble", "told", "taken"),
    [
        ("start", "cannot be started (ConnectionError: dead)", 0),
        ("write", "cannot be written to (ConnectionError: dead)", 1),
        ("hang", "it does not answer", 1),
    ],
)
def test_what_no_backend_has_taken_is_in_its_spool(
    trouble: str, told: str, taken: int, job: tuple[Path, dict[str, Any]]
) -> None:
    root, found = job[0], job[1][trouble]
    assert found["steps"] == 4
    for package in PACKAGES:
        lines = about(package, found["told"])
        assert any(told in line for line in lines), package
        assert sum(line.startswith("WARNING") for line in lines) == 1, lines
        assert found["sent"][package] == taken
        (path,) = (root / trouble).glob(f"spool/*-{package}.jsonl")
        rows: dict[str, dict[str, float]] = {}
        for record in StoredSpool(str(path)):
            rows.setdefault(str(record.step), {}).update(record.scalars)
        assert rows == found["rows"]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("close", "cannot be closed (ConnectionError: dead)"),
        ("full", "kept in memory until it is sent"),
    ],
)
def test_all_backends_have_all_in_spite_of_it(
    trouble: str, told: str, job: tuple[Path, dict[str, Any]]
) -> None:
    root, found = job[0] / trouble, job[1][trouble]
    assert found["steps"] == 4
    for package in PACKAGES:
        lines = about(package, found["told"])
        assert any(told in line for line in lines), package
        assert sum(line.startswith("WARNING") for line in lines) == 1, lines
    rows = {int(step): row for step, row in found["rows"].items()}
    assert read_clearml(root / "clearml") == rows
    assert read_dvclive(root / "dvclive") == rows
    assert points(root / "mlflow.db") == rows
    assert series(read_neptune(root)) == rows
    assert read_visdom_log(root / "visdom") == rows
    drawn, _ = read_tensorboard(root / "tf_logs")
    assert drawn.keys() == rows.keys()
    assert all(drawn[step] == pytest.approx(rows[step], rel=1e-6) for step in rows)
    assert history(read_wandb(root)) == rows
    assert not (root / "spool").exists()


# -- a repeatedly killed and resumed run with a text log and three trackers --

EPOCHS, BATCHES, KILLS = 10, 6, 6
PROGRAM = f"""
import sys, time
import torch
import lightning_hooks as h
from support.training import TinyModule, make_loader, make_trainer

class Slow(TinyModule):
    def training_step(self, batch, batch_idx):
        time.sleep(0.05)
        return super().training_step(batch, batch_idx)

work = sys.argv[1]
adapter = h.HookAdapter([
    h.CheckpointHook(interval=1, max_keep_ckpts=2), h.TextLoggerHook(interval=2),
    h.MlflowLoggerHook(interval=2, log_model=False, timeout=120.0),
    h.WandbLoggerHook(interval=2, log_artifact=False, timeout=120.0),
    h.TensorboardLoggerHook(interval=2, timeout=120.0),
], work_dir=work)
trainer = make_trainer(work, adapter, max_epochs={EPOCHS})
torch.manual_seed(0)
trainer.fit(Slow(), make_loader({BATCHES}), make_loader(1), ckpt_path=h.newest_valid(work))
"""
VARIABLES = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
}


def start(work: Path, output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as file:
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(work)]
        variables = {**environment(), **VARIABLES}
        return subprocess.Popen(command, env=variables, stdout=file, stderr=file, cwd=work)


def logged(work: Path) -> int:
    """Return the number of lines in the text log, as a measure of progress."""
    return sum(path.read_bytes().count(b"\n") for path in work.glob("2*.log.json"))


def train(work: Path, kills: int = 0, seed: int = 0) -> None:
    """Train to the end, with the given number of killed processes before."""
    work.mkdir()
    draw = random.Random(seed)
    for _ in range(kills):
        process, before = start(work, work.parent / f"{work.name}.txt"), logged(work)
        end = time.monotonic() + 300
        while logged(work) == before and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = start(work, work.parent / f"{work.name}.txt")
    assert last.wait(300) == 0, (work.parent / f"{work.name}.txt").read_text()[-3000:]


def test_after_kills_each_backend_has_each_step_once(
    tmp_path: Path,
) -> None:
    for package in ("mlflow", "wandb", "tensorboard"):
        pytest.importorskip(package)
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path / "whole")
    train(tmp_path / "killed", kills=KILLS)
    work = tmp_path / "killed"
    assert read_logs(work) == read_logs(tmp_path / "whole")
    wanted = [*range(2, EPOCHS * BATCHES + 1, 2)]
    with sqlite3.connect(work / "mlflow.db") as db:
        rows = db.execute("select run_uuid, step from metrics where key = 'train/loss'").fetchall()
        runs = [run for (run,) in db.execute("select run_uuid from runs where status='FINISHED'")]
    (run,) = runs
    assert sorted(step for of, step in rows if of == run) == wanted
    reader = accumulator.EventAccumulator(str(work / "tf_logs"))
    reader.Reload()
    in_tensorboard = Counter(event.step for event in reader.Scalars("train/loss"))
    assert [*sorted(in_tensorboard)] == wanted
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"))
    by_run: dict[str, list[int]] = {}
    for file in files:
        steps = trackers.history(trackers.inspect_wandb(file))
        found = [step for step, row in steps.items() if "train/loss" in row]
        by_run.setdefault(file.stem, []).extend(found)
    most = max(by_run.values(), key=len)
    assert len({*most}) == len(most)
    # rows not yet written by W&B's client at a kill are lost, without notice from the client
    lost = {*wanted} - {*most}
    gaps = [step for step in lost if step + 2 not in lost]
    assert len(gaps) <= KILLS, sorted(lost)
