"""A real MLflow server that is killed while a run logs to it, and comes back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import Hook, MlflowLoggerHook
from support import training
from support.logs.trackers import Sent, client_of, points, replay_as_told, run_of
from support.processes import free_port

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Server:
    """``mlflow server`` on loopback, with sqlite and an artifact folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: Any = None

    def start(self, wait: bool = True) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if wait:
            self.wait()

    def wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.uri}/health", timeout=1).close()
                return
            time.sleep(0.1)
        raise TimeoutError("the server did not start")

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path, empty_db: Path) -> Any:
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(empty_db, folder / "mlflow.db")
    server = Server(folder)
    server.start()
    yield server
    server.kill()


class Outage(Hook):
    """Kills the server at one iteration, and starts it again at another."""

    def __init__(self, server: Server, kill: int, start: int | None = None) -> None:
        self.server, self.kill, self.start = server, kill, start
        self.longest, self.last = 0.0, 0.0

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == self.kill:
            time.sleep(1.0)  # some of it is there by now
            self.server.kill()
        if runner.iter == self.start:
            self.server.start()
        self.last = time.monotonic()

    def after_train_iter(self, runner: Any) -> None:
        self.longest = max(self.longest, time.monotonic() - self.last)
        time.sleep(0.02)


def fit(work: Path, uri: str, monkeypatch: Any, outage: Outage, **kwargs: Any) -> Sent:
    """Log to a server that has an outage; return what was to be logged."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    sent = Sent(interval=1)
    hooks = MlflowLoggerHook("digits", interval=1, **kwargs), sent, outage
    options = {"work_dir": str(work), "num_sanity_val_steps": 0}
    training.fit(work.parent, *hooks, batches=60, val=2, **options)
    return sent


@pytest.mark.slow
def test_every_point_arrives_although_the_server_was_killed_in_the_run(
    server: Server, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(server, kill=20, start=45)
    sent = fit(work, server.uri, monkeypatch, outage, timeout=30.0)
    assert outage.longest < 1.0
    assert points(server.folder / "mlflow.db") == sent.rows
    run = run_of(client_of(server.folder / "mlflow.db"))
    assert run.info.status == "FINISHED"
    files = [path.name for path in (server.folder / "artifacts").rglob("*")]
    assert "MLmodel" in files
    messages = [r.getMessage() for r in caplog.records if "MlflowLoggerHook: " in r.getMessage()]
    assert "mlflow cannot be written to" in messages[0]
    assert "mlflow is there again" in messages[-1]
    assert not (work / "spool").exists()


@pytest.mark.slow
def test_what_a_dead_server_has_not_taken_is_replayed_into_the_same_run(
    server: Server, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = fit(work, server.uri, monkeypatch, Outage(server, kill=20), timeout=0.5, log_model=False)
    some = points(server.folder / "mlflow.db")
    assert 0 < len(some) < len(sent.rows)
    (path,) = work.glob("spool/*.jsonl")
    server.start()
    replay_as_told(caplog)
    assert points(server.folder / "mlflow.db") == sent.rows
    run = run_of(client_of(server.folder / "mlflow.db"))  # one
    assert run.info.status == "FINISHED"
    assert not path.exists()
