"""MLflow's SQLite file: made whole or not at all, by one of several processes, and mended."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import MlflowLoggerHook
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter, find_experiment, make_database
from support.logs.trackers import client_of, fit, points

mlflow = pytest.importorskip("mlflow")
pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the client's, and Python's
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
CONNECT = """
import sys
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter
MlflowWriter.connect(uri="sqlite:///" + sys.argv[1], experiment="digits", tags={})
"""


def start(db: Path) -> subprocess.Popen[bytes]:
    """Open a run in another process."""
    command = [sys.executable, "-W", "ignore", "-c", CONNECT, str(db)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def half_made(db: Path) -> None:
    """Leave what MLflow leaves when it is killed as it makes its tables."""
    with sqlite3.connect(db) as database:
        database.execute("create table experiments (experiment_id integer)")
        database.execute("create table runs (run_uuid text)")


@pytest.mark.slow
def test_a_half_made_file_is_set_aside_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "work").mkdir()
    half_made(tmp_path / "work/mlflow.db")
    fit(tmp_path / "work", MlflowLoggerHook(interval=1, log_model=False, timeout=60.0), epochs=1)
    assert len(points(tmp_path / "work/mlflow.db")) == 5
    assert len([*tmp_path.glob("work/mlflow.db.half-made-*")]) == 1
    assert "half-made by a process that was killed" in caplog.text
    assert not [*tmp_path.glob("work/mlflow.db*lock")]


@pytest.mark.slow
def test_two_files_of_one_process_are_made_one_after_the_other(tmp_path: Path) -> None:
    uris = [f"sqlite:///{tmp_path}/{number}.db" for number in range(2)]
    with ThreadPoolExecutor() as threads:
        assert [*threads.map(make_database, uris)] == ["", ""]


def test_a_file_with_runs_or_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    old, text = tmp_path / "old.db", tmp_path / "text.db"
    half_made(old)
    with sqlite3.connect(old) as database:
        database.execute("insert into runs values ('1f')")
    text.write_text("not a database, but somebody's file")
    for path in (old, text):
        before = path.read_bytes()
        assert make_database(f"sqlite:///{path}") == ""
        assert path.read_bytes() == before
    assert make_database("http://127.0.0.1:9") == make_database(None) == ""


def test_an_experiment_that_another_process_creates_meanwhile_is_found(work: Path) -> None:
    client = client_of(work / "mlflow.db")
    create = client.create_experiment

    def create_twice(name: str, artifact_location: str | None) -> Any:
        create(name, artifact_location=artifact_location)
        return create(name, artifact_location=artifact_location)

    client.create_experiment = create_twice
    number = find_experiment(client, "digits", None)
    assert client.get_experiment_by_name("digits").experiment_id == number


@pytest.mark.slow
def test_four_processes_that_begin_together_have_four_runs(tmp_path: Path) -> None:
    db = tmp_path / "work" / "mlflow.db"
    processes = [start(db) for _ in range(4)]
    assert [process.wait(300) for process in processes] == [0] * 4
    client = client_of(db)
    (experiment,) = (e for e in client.search_experiments() if e.name == "digits")
    assert len(client.search_runs([experiment.experiment_id])) == 4


@pytest.mark.slow
def test_a_process_that_is_killed_as_it_makes_the_tables_leaves_a_file_that_opens(
    tmp_path: Path,
) -> None:
    db = tmp_path / "mlflow.db"
    for attempt in range(12):
        process = start(db)
        end = time.monotonic() + 60
        while not any(tmp_path.iterdir()) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.08 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if db.exists():  # whole, as soon as it is there
            assert make_database(f"sqlite:///{db}") == ""
            db.unlink()
    writer = MlflowWriter.connect(uri=f"sqlite:///{db}", experiment="digits", tags={})
    assert writer.run
