"""After a SIGKILL, the next process sends the unsent records."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightning_hooks.loggers.delivery.spool import count_records, exclusive, read_head
from support.logs.trackers import exit_code, history, inspect_wandb, read_tensorboard
from support.processes import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PROGRAM = """
import sys, time
from pathlib import Path
import lightning_hooks as h
from support.training import TinyModule, make_loader, make_trainer

work, tracker, halt = Path(sys.argv[1]), getattr(h, sys.argv[2])(interval=2), sys.argv[3]

def wait(place):
    while place == halt and not (work / "go").exists():
        (work / "here").touch()
        time.sleep(0.05)

class Wait(h.Hook):
    priority = "LOWEST"

    def before_train_iter(self, runner):
        wait(f"iteration {runner.iter}")

    def after_val_epoch(self, runner):
        wait(f"validation {runner.epoch}")

hooks = [h.CheckpointHook(interval=1), tracker, Wait()]
trainer = make_trainer(work, h.HookAdapter(hooks, work_dir=str(work)), max_epochs=2)
trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=h.newest_valid(str(work)))
wait("after the fit")
"""


OPEN_RUN = """
import wandb

wandb.init(mode="offline", id="mine", resume="allow", settings={"console": "off"})
"""

PATIENCE = 300.0  # seconds: on a busy machine the imports alone take a minute

VARIABLES = environment(WANDB_MODE="offline", WANDB_SILENT="true", MLFLOW_DISABLE_TELEMETRY="true")


def start(work: Path, tracker: str, halt: str, first: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-c", first + PROGRAM, str(work), tracker, halt]
    variables = {**VARIABLES, "TRACKIO_DIR": str(work / "trackio")}
    with (work / "said").open("w") as file:
        return subprocess.Popen(command, env=variables, stdout=file, stderr=file, cwd=work)


@contextmanager
def killed(work: Path, tracker: str, halt: str, first: str = "") -> Iterator[Path | None]:
    """Start a training that waits at a given point; yield the spool, then kill the process."""
    work.mkdir(exist_ok=True)
    process, end = start(work, tracker, halt, first), time.monotonic() + PATIENCE
    while not (work / "here").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    try:
        yield next(work.glob("spool/*.jsonl"), None)
    finally:
        process.kill()
        process.wait()


def train(work: Path, tracker: str, first: str = "") -> str:
    """Train to the end; return the output of the process."""
    process = start(work, tracker, "nowhere", first)
    try:
        assert process.wait(PATIENCE) == 0, (work / "said").read_text()
    finally:
        process.kill()
    return (work / "said").read_text()


def left_by_a_kill(work: Path) -> Path:
    """Kill a run before TensorBoard receives any record; return the spool."""
    pytest.importorskip("tensorboard")
    work.mkdir()
    (work / "tf_logs").write_text("no folder")  # prevents any delivery
    with killed(work, "TensorboardLoggerHook", "validation 2") as spool:
        assert spool is not None
    (work / "tf_logs").unlink()
    return spool


def test_a_run_that_is_over_sends_what_a_kill_has_left(tmp_path: Path) -> None:
    work = tmp_path / "work"
    spool = left_by_a_kill(work)
    assert count_records(str(spool), rest=True) == 6
    train(work, "TensorboardLoggerHook")
    rows = read_tensorboard(work / "tf_logs")[0]
    assert {step: "val/val_loss" in row for step, row in rows.items()} == {
        2: False, 4: False, 5: True, 6: False, 8: False, 9: True,
    }  # fmt: skip
    assert not spool.exists()
    train(work, "TensorboardLoggerHook")  # nothing is left: no second event file
    assert len([*work.glob("tf_logs/events*")]) == 1


def test_a_spool_in_use_by_another_process_is_named(tmp_path: Path) -> None:
    work = tmp_path / "work"
    spool = left_by_a_kill(work)
    with exclusive(str(spool)):  # as a child process of the killed process does
        said = train(work, "TensorboardLoggerHook")
    assert f"another process uses {spool}, so that the 6 records" in said
    command = f"lightning-hooks replay {spool} --to tensorboard"
    assert command in said
    assert spool.exists()


def rows_of_wandb(work: Path, run: str = "*") -> dict[int, dict[str, float]]:
    """Return the rows of all offline files of a run; fail if a value appears twice."""
    rows: dict[int, dict[str, float]] = {}
    for file in sorted(work.glob(f"wandb/offline-run-*/run-{run}.wandb")):
        for step, row in history(inspect_wandb(file)).items():
            new = {name: v for name, v in row.items() if name.startswith(("train/", "val/"))}
            assert not new.keys() & rows.get(step, {}).keys()
            rows.setdefault(step, {}).update(new)
    return rows


WHOLE = {2: ["train/loss"], 4: ["train/loss"], 5: ["val/val_loss"]}


def test_offline_rows_are_complete_up_to_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    work = tmp_path / "work"
    with killed(work, "WandbLoggerHook", "iteration 5"):
        time.sleep(8)  # the client has all, and keeps the last row in memory
    train(work, "WandbLoggerHook")
    rows = rows_of_wandb(work)
    assert {step: [*row] for step, row in rows.items() if step <= 5} == WHOLE
    assert {6, 8, 9} <= rows.keys()


def test_offline_rows_in_a_run_of_the_program_are_complete(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    work = tmp_path / "work"
    with killed(work, "WandbLoggerHook", "iteration 5", OPEN_RUN):
        time.sleep(8)  # the client has all and writes after 15 seconds
    train(work, "WandbLoggerHook", OPEN_RUN)
    files = work.glob("wandb/offline-run-*/run-mine.wandb")
    rows = (row for file in files for row in history(inspect_wandb(file)).values())
    assert {2, 4, 5, 6, 8, 9} == {row["global_step"] for row in rows}


def losses_of_wandb(work: Path) -> list[list[int]]:
    """Return the steps with a loss of each run, in order of the runs' beginnings."""
    runs: dict[str, list[int]] = {}
    for file in sorted(work.glob("wandb/offline-run-*/run-*.wandb")):
        rows = history(inspect_wandb(file))
        runs.setdefault(file.stem, []).extend(s for s, row in rows.items() if "train/loss" in row)
    return [*runs.values()]


def losses_of_mlflow(work: Path) -> list[list[int]]:
    """Return the steps with a loss of each run."""
    runs: dict[str, list[int]] = {}
    with sqlite3.connect(work / "mlflow.db") as db:
        for run, step in db.execute(
            "select run_uuid, step from metrics where key = 'train/loss' order by step"
        ):
            runs.setdefault(run, []).append(step)
    return [*runs.values()]


LOSSES = {"WandbLoggerHook": losses_of_wandb, "MlflowLoggerHook": losses_of_mlflow}


@pytest.mark.parametrize("tracker", LOSSES)
@pytest.mark.parametrize(("halt", "unsent"), [("iteration 3", 1), ("iteration 5", 3)])
def test_a_kill_while_the_client_starts_loses_nothing(
    tmp_path: Path, tracker: str, halt: str, unsent: int
) -> None:
    pytest.importorskip("wandb" if tracker == "WandbLoggerHook" else "mlflow")
    work = tmp_path / "work"
    with killed(work, tracker, halt) as spool:
        assert spool is not None
        assert count_records(str(spool), rest=True) == unsent  # the client has taken nothing yet
    said = train(work, tracker)
    whole = [2, 4, 6, 8]
    if halt == "iteration 3":  # before the first checkpoint: the next process begins a new run
        assert f"earlier runs have left {unsent} records" in said
        run_as_told(said, work)
        assert sorted(LOSSES[tracker](work)) == [[2], whole]
    else:
        assert LOSSES[tracker](work) == [whole]
    assert not spool.exists()


def test_a_kill_after_the_fit_costs_no_row_of_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    with killed(tmp_path / "work", "WandbLoggerHook", "after the fit") as spool:
        assert spool is None  # all is delivered
        time.sleep(3)  # the client writes every second
    assert rows_of_wandb(tmp_path / "work").keys() == {2, 4, 5, 6, 8, 9}


def test_a_kill_before_trackios_client_has_written_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    work = tmp_path / "work"
    with killed(work, "TrackioLoggerHook", "iteration 5") as spool:
        assert spool is not None
        end = time.monotonic() + 8  # the sender collects records for five seconds
        while count_records(str(spool), rest=True) == 3 and time.monotonic() < end:
            time.sleep(0.005)
    train(work, "TrackioLoggerHook")
    with sqlite3.connect(work / "trackio/work.db") as db:
        rows = db.execute("select step, metrics from metrics order by step").fetchall()
    steps = [(step, name) for step, row in rows for name in json.loads(row) if "loss" in name]
    assert steps == [
        *((step, "train/loss") for step in (2, 4)),
        (5, "val/val_loss"),
        *((step, "train/loss") for step in (6, 8)),
        (9, "val/val_loss"),
    ]


def run_as_told(said: str, work: Path) -> None:
    """Run every ``lightning-hooks replay`` command from the output verbatim."""
    program = [sys.executable, "-W", "ignore", "-c", "from lightning_hooks.cli import main; main()"]
    commands = dict.fromkeys(re.findall("(?m)lightning-hooks replay .*", said))
    assert commands
    for command in commands:
        subprocess.run([*program, *shlex.split(command)[1:]], env=VARIABLES, cwd=work, check=True)


def test_the_command_sends_what_a_killed_run_has_left(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    work = tmp_path / "work"
    with killed(work, "WandbLoggerHook", "validation 1") as spool:
        assert spool is not None
        run = read_head(str(spool))[0]["run"]
    for file in work.glob("*.pth"):  # prevents a resume
        file.unlink()
    run_as_told(train(work, "WandbLoggerHook"), work)
    assert {step: [*row] for step, row in rows_of_wandb(work, run).items()} == WHOLE
    assert not spool.exists()
    last = max(work.glob(f"wandb/offline-run-*/run-{run}.wandb"), key=os.path.getmtime)
    assert exit_code(inspect_wandb(last)) == 255  # W&B's code for a killed run


@pytest.mark.parametrize("moment", ["before a run", "in a run"])
def test_the_command_sends_the_rest_after_a_time_out(moment: str, tmp_path: Path) -> None:
    settings = pytest.importorskip("wandb").Settings.model_fields
    if moment == "in a run" and "finish_timeout" not in settings:
        pytest.skip("before 0.27 the rows that a frozen service holds count as taken")
    work = tmp_path / "work"
    work.mkdir()
    process, services = start(work, "WandbLoggerHook", "iteration 3"), list[int]()
    try:
        while not services and process.poll() is None:
            found = subprocess.run(
                ["pgrep", "-P", str(process.pid), "wandb-core"], capture_output=True, text=True
            )
            services = [*map(int, found.stdout.split())]
            time.sleep(0.01)
        while moment == "in a run" and not (work / "here").exists():
            time.sleep(0.1)
        for service in services:
            os.kill(service, signal.SIGSTOP)
        (work / "go").touch()
        assert process.wait(240) == 0
    finally:
        process.kill()
        for service in services:
            os.kill(service, signal.SIGKILL)
    run_as_told((work / "said").read_text(), work)
    rows = rows_of_wandb(work)
    assert {step: [*row] for step, row in rows.items() if step <= 5} == WHOLE
    assert {6, 8, 9} <= rows.keys()
    assert not [*work.glob("spool/*")]
