"""MLflow with the real client: logged values read back, the UI, the store, and a server."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import Hook, MlflowLoggerHook, SystemMetricsHook, log_image, log_table
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import Spool, StoredSpool
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter, find_experiment, make_database
from lightning_hooks.utils.samples import Table
from support.logs.trackers import (
    REAL_CLIENTS,
    Crash,
    Sent,
    Tuned,
    client_of,
    fit,
    logged_models,
    points,
    replay_as_told,
    run_of,
    warnings_in,
)
from support.processes import free_port
from support.training import TinyModule

mlflow = pytest.importorskip("mlflow")
registry = pytest.importorskip("mlflow.tracking.context.registry")
pytestmark = REAL_CLIENTS


def test_mlflow_run_is_read_back(work: Path) -> None:
    sent = Sent(interval=2)
    hook = MlflowLoggerHook("digits", {"team": "blue"}, {"lr": 0.1, "steps": [8, 11]}, interval=2)
    module = fit(work, sent, hook)
    assert points(work / "mlflow.db") == sent.rows
    client = client_of(work / "mlflow.db")
    run = run_of(client)
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    assert run.data.params == {"lr": "0.1", "steps": "[8, 11]"}
    assert run.data.tags["team"] == "blue"
    assert run.info.status == "FINISHED"
    (logged,) = logged_models(client, [run.info.experiment_id])
    folder = logged.artifact_location.removeprefix("file://")
    assert Path(folder).is_relative_to(work)
    model = mlflow.pytorch.load_model(folder)
    assert torch.equal(model.net.weight, module.net.weight)
    assert os.listdir() == []
    assert mlflow.active_run() is None
    assert not mlflow.is_tracking_uri_set()


def test_mlflow_logs_to_the_configured_server(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "mlflow.db").rename(tmp_path / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    fit(work, MlflowLoggerHook(interval=2, log_model=False), epochs=1)
    assert list(points(tmp_path / "other.db")) == [2, 4, 5]
    assert run_of(client_of(tmp_path / "other.db")).info.experiment_id == "0"
    assert not (work / "mlflow.db").exists()


def test_a_step_has_one_learning_rate(work: Path) -> None:
    fit(work, MlflowLoggerHook(interval=1, log_model=False))
    client = client_of(work / "mlflow.db")
    run_id = run_of(client).info.run_id
    for name in ("learning_rate", "momentum"):
        steps = [metric.step for metric in client.get_metric_history(run_id, name)]
        assert sorted(steps) == [*range(1, 10)]


def killed(work: Path, unsent: int) -> str:
    """Write the files of a process killed after three records; return the run's id."""
    writer = MlflowWriter.connect(uri=f"sqlite:///{work}/mlflow.db")
    spool = Spool(str(work / "spool" / "then-mlflow.jsonl"), {"writer": "mlflow", "key": "1f"})
    for step in range(3):
        spool.append(1.0, step, scalars={"train/loss": 0.5})
    taken = spool.take(3)[: 3 - unsent]
    writer.write(taken)
    spool.acknowledge(len(taken), writer.run_id())
    spool.close(keep=True)
    return str(writer.run_id())


@pytest.mark.parametrize("unsent", [0, 1])
def test_a_killed_run_is_ended_by_the_command_of_the_next(
    work: Path, caplog: pytest.LogCaptureFixture, unsent: int
) -> None:
    run_id, client = killed(work, unsent), client_of(work / "mlflow.db")
    assert client.get_run(run_id).info.status == "RUNNING"
    fit(work, MlflowLoggerHook("mine", log_model=False), epochs=1)
    replay_as_told(caplog)
    assert client.get_run(run_id).info.status == "KILLED"
    assert [m.step for m in client.get_metric_history(run_id, "train/loss")] == [0, 1, 2]
    experiments = [each.experiment_id for each in client.search_experiments()]
    assert len(client.search_runs(experiments)) == 2
    assert not [*work.glob("spool/*")]
    assert f"{unsent} records sent to mlflow, run {run_id}, which has ended" in caplog.text


def test_a_replay_elsewhere_begins_no_run_unless_told(work: Path, tmp_path: Path) -> None:
    run_id = killed(work, 1)
    uri = f"sqlite:///{tmp_path}/other.db"
    shutil.copy(work / "mlflow.db", tmp_path / "other.db")
    client_of(tmp_path / "other.db").delete_run(run_id)
    (spool,) = map(str, work.glob("spool/*-mlflow.jsonl"))
    with pytest.raises(ValueError, match=f"no run {run_id}; --new-run begins another"):
        replay(spool, "mlflow", tracking_uri=uri)
    assert replay(spool, "mlflow", tracking_uri=uri, new_run=True) == 1
    assert run_of(client_of(tmp_path / "other.db")).info.status == "KILLED"


class Grouped(TinyModule):
    """A module that logs a value named like a group of other values."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.log("loss/cls", float(batch_idx))
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        named = self.net.named_parameters()
        groups = [{"params": [value], "name": name} for name, value in named]
        return torch.optim.SGD(groups, lr=0.1)


def test_a_store_in_folders_has_numbers_that_are_groups(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file://{tmp_path}/mlruns"
    hook = MlflowLoggerHook(interval=2, log_model=False, tracking_uri=uri, all_groups=True)
    fit(work, hook, module=Grouped())
    run = run_of(mlflow.MlflowClient(uri))
    assert {"train/loss", "train/loss_/cls", "learning_rate", "learning_rate_/weight"} <= {
        *run.data.metrics
    }
    assert (hook.status()["refused"], run.info.status) == (0, "FINISHED")
    (warning,) = warnings_in(caplog)
    assert "a number and a group cannot share a name: train/loss/cls is train/loss_/cls" in warning


class Symbols(TinyModule):
    """A module that logs a name with characters refused by MLflow."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("AP@50", 0.5)


def test_departure_mlflow_keys_are_mended_in_a_failed_run(
    work: Path,
) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, MlflowLoggerHook(interval=2), Crash(), module=Symbols())
    run = run_of(client_of(work / "mlflow.db"))
    assert run.data.metrics["val/AP_50"] == 0.5
    assert run.info.status == "FAILED"


def test_a_dead_mlflow_server_costs_one_warning(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    module = fit(work, MlflowLoggerHook(interval=1, timeout=0.5), epochs=1)
    assert len(module.losses) == 4
    (warning,) = warnings_in(caplog)
    assert warning.startswith("MlflowLoggerHook: mlflow cannot be started (MlflowException: ")


def test_departure_mlflow_is_a_file_and_its_global_state_stays(work: Path) -> None:
    before = mlflow.get_tracking_uri()
    fit(work, MlflowLoggerHook(interval=2, log_model=False), epochs=1)
    assert points(work / "mlflow.db").keys() == {2, 4, 5}
    assert mlflow.get_tracking_uri() == before
    assert not mlflow.is_tracking_uri_set()


def test_departure_mlflow_has_the_model_without_a_wrapper(work: Path, capfd: Any) -> None:
    fit(work, MlflowLoggerHook(interval=2), epochs=1)
    assert "serialization_format" not in capfd.readouterr().err  # no argument of the hook's
    client = client_of(work / "mlflow.db")
    (logged,) = logged_models(client, [run_of(client).info.experiment_id])
    assert type(mlflow.pytorch.load_model(logged.artifact_location)) is TinyModule


def test_departure_mlflow_uses_a_run_that_is_given(work: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    try:
        with mlflow.start_run() as run:
            pass
        fit(work, MlflowLoggerHook(interval=2, log_model=False, run=run), epochs=1)
    finally:
        mlflow.set_tracking_uri(None)
    found = run_of(client_of(work / "mlflow.db"))
    assert found.info.run_id == run.info.run_id
    assert "train/loss" in found.data.metrics


def test_a_parameter_that_mlflow_refuses_costs_no_metric(
    work: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_batch = mlflow.MlflowClient.log_batch

    def refuse_parameters(client: Any, run_id: str, **values: Any) -> None:
        if values.get("params"):
            raise mlflow.MlflowException("no", error_code=1000)  # INVALID_PARAMETER_VALUE
        log_batch(client, run_id, **values)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", refuse_parameters)
    hook = MlflowLoggerHook(interval=1, log_model=False)
    fit(work, hook, module=Tuned(0.2), epochs=1)
    assert len(points(work / "mlflow.db")) == 5
    assert hook.status()["refused"] == 1
    assert "mlflow does not want a record" in caplog.text
    (path,) = work.glob("spool/*.refused.jsonl")
    assert "lr" in next(iter(StoredSpool(str(path)))).params


@pytest.mark.parametrize("status", [401, 403, 404, 407, 408, 429, 500, 503])
def test_an_error_of_a_proxy_or_a_token_may_pass(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import RestException

    error = RestException({"error_code": "X", "message": "no"})
    monkeypatch.setattr(error, "get_http_status_code", lambda: status)
    assert not MlflowWriter.is_permanent(error)


# -- contents of a run in MLflow's UI --


def test_created_by_and_source(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = "git -c user.name=me -c user.email=me@here"
    commands = f"git init -q && {git} commit -q --allow-empty -m one && git rev-parse HEAD"
    commit = subprocess.check_output(commands, shell=True, text=True).strip()
    Path("train.py").touch()
    monkeypatch.setattr(sys, "argv", [str(Path.cwd() / "train.py")])
    monkeypatch.setenv("LOGNAME", "ada")
    for context in registry._run_context_provider_registry:
        monkeypatch.setattr(context, "_cache", {}, raising=False)  # of another test's commit
    fit(work, MlflowLoggerHook(tags={"team": "blue"}, log_model=False), epochs=1)
    tags = run_of(client_of(work / "mlflow.db")).data.tags
    shown = {name: tags.get(f"mlflow.{name}") for name in ("user", "source.name", "source.type")}
    assert shown == {"user": "ada", "source.name": sys.argv[0], "source.type": "LOCAL"}
    assert (tags["mlflow.source.git.commit"], tags["team"]) == (commit, "blue")


def test_system_metrics_are_in_their_tab(work: Path) -> None:
    pytest.importorskip("psutil")
    fit(work, SystemMetricsHook(interval=0.01), MlflowLoggerHook(interval=1, log_model=False))
    names = {name for row in points(work / "mlflow.db").values() for name in row}
    assert "system/cpu" in names
    assert not [name for name in names if "/system/" in name]


class Sized(TinyModule):
    """A module with an example input array."""

    example_input_array = torch.zeros(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def test_before_mlflow_3_the_model_is_a_file_of_its_run(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(mlflow.MlflowClient, "create_logged_model", raising=False)
    fit(work, MlflowLoggerHook(), module=Sized, epochs=1)
    run = run_of(client_of(work / "mlflow.db"))
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    loaded = mlflow.pytorch.load_model(f"runs:/{run.info.run_id}/models")
    assert loaded(torch.ones(1, 4)).shape == (1, 2)


def test_the_model_has_a_signature_and_requirements(work: Path) -> None:
    fit(work, MlflowLoggerHook(), module=Sized, epochs=1)
    client = client_of(work / "mlflow.db")
    run = run_of(client)
    (model,) = logged_models(client, [run.info.experiment_id])
    assert (model.name, model.source_run_id, str(model.status)) == (
        "models",
        run.info.run_id,
        "READY",
    )
    assert [each.model_id for each in run.outputs.model_outputs] == [model.model_id]
    folder = model.artifact_location.removeprefix("file://")
    requirements = Path(folder, "requirements.txt").read_text().split()
    names = {line.partition("==")[0] for line in requirements}
    assert {"torch", "lightning", "cloudpickle", "mlflow"} <= names
    assert mlflow.models.get_model_info(folder).signature.inputs is not None
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")  # as suggested on the page
    loaded = mlflow.pytorch.load_model(f"models:/{model.model_id}")
    assert torch.equal(loaded(torch.ones(1, 4)), loaded(torch.ones(1, 4)))


class Sampling(TinyModule):
    """Logs an image and a table in each validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 0:
            log_image(self, "sample", torch.ones(3, 4, 5))
            log_table(self, "worst: 3", {"id": [1, 2], "label": ["cat", None]})
        return super().validation_step(batch, batch_idx)


def test_images_have_steps_and_tables_are_loaded(work: Path) -> None:
    fit(work, MlflowLoggerHook(log_model=False), module=Sampling)
    client = client_of(work / "mlflow.db")
    run = run_of(client)
    assert run.data.tags["mlflow.loggedImages"] == "True"
    paths = [each.path for each in client.list_artifacts(run.info.run_id, "images")]
    assert sorted(re.split("[+%]timestamp", path)[0] for path in paths if path.endswith("png")) in (
        ["images/val~sample+step+5", "images/val~sample+step+9"],
        ["images/val#sample%step%5", "images/val#sample%step%9"],  # MLflow 2
    )
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    table = mlflow.MlflowClient().load_table(
        run.info.experiment_id, "tables/val/worst_ 3/9.json", [run.info.run_id]
    )
    assert table["id"].tolist() == [1, 2]
    assert table["label"].tolist()[0] == "cat"


def test_a_sample_is_stored_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    rows = ((1,), (float("inf"),), (float("-inf"),))
    images, tables = {"a b": torch.ones(3, 4, 5).numpy()}, {"t": Table(("id",), rows)}
    record = Record(0, 1.0, 3, images=images, tables=tables)
    writer = MlflowWriter.connect(uri=uri)

    def fail(*args: Any) -> None:
        raise ConnectionError("no")

    with monkeypatch.context() as patch:
        patch.setattr(writer.client, "log_table", fail)
        with pytest.raises(ConnectionError):
            writer.write([record])
    writer.write([record])  # a second attempt
    again = MlflowWriter.connect(uri=uri, run_id=writer.run, after=0)  # another process
    again.write([record])
    assert len(writer.client.list_artifacts(writer.run, "images")) == 2  # the image and the preview
    mlflow.set_tracking_uri(uri)
    table = mlflow.load_table("tables/t/3.json", [writer.run])
    assert table["id"].tolist() == [1, math.inf, -math.inf]


def test_autolog_beside_the_hook_is_said_once(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    before = os.environ.get("MLFLOW_TRACKING_URI")  # set by MLflow 3
    mlflow.pytorch.autolog(log_models=False)
    try:
        fit(work, MlflowLoggerHook(log_model=False), epochs=1)
    finally:
        mlflow.pytorch.autolog(disable=True)
    (said,) = [text for text in warnings_in(caplog) if "autolog" in text]
    assert said.startswith("MlflowLoggerHook: mlflow.autolog logs this training too")
    if "Autologging is known to be compatible" not in caplog.text:  # with an older Lightning
        names = run_of(client_of(work / "mlflow.db")).data.metrics  # of both hooks, in one run
        assert {"train/loss", "train_loss"} <= names.keys()
    caplog.clear()
    fit(work, MlflowLoggerHook(log_model=False), epochs=1)
    assert not [text for text in warnings_in(caplog) if "autolog" in text]
    assert os.environ.get("MLFLOW_TRACKING_URI") == before


# -- MLflow's SQLite file: created atomically by one of several processes, and repaired --

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
    """Create the database of an MLflow killed while it creates its tables."""
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


def test_an_experiment_created_meanwhile_is_found(work: Path) -> None:
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
def test_a_kill_while_tables_are_made_leaves_a_whole_file(
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
        if db.exists():  # complete as soon as the file exists
            assert make_database(f"sqlite:///{db}") == ""
            db.unlink()
    writer = MlflowWriter.connect(uri=f"sqlite:///{db}", experiment="digits", tags={})
    assert writer.run


# -- a real MLflow server, killed and restarted during a run --


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


def wait_until(runner: Any, holds: Callable[[dict[str, Any]], Any]) -> None:
    """Wait until a condition holds for the status of each tracker, at most a minute."""
    trackers = [hook for hook in runner.hooks if isinstance(hook, MlflowLoggerHook)]
    end = time.monotonic() + 60
    while not all(holds(hook.status()) for hook in trackers) and time.monotonic() < end:
        time.sleep(0.05)


class Outage(Hook):
    """Kills the server at one iteration and restarts the server at another."""

    def __init__(self, server: Server, kill: int, start: int | None = None) -> None:
        self.server, self.kill, self.start = server, kill, start
        self.longest, self.last = 0.0, 0.0

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == self.kill:
            wait_until(runner, lambda status: status["sent"])
            self.server.kill()
        if runner.iter == self.start:  # an old client tries again for a while by itself
            wait_until(runner, lambda status: status["error"])
            self.server.start()
        self.last = time.monotonic()

    def after_train_iter(self, runner: Any) -> None:
        self.longest = max(self.longest, time.monotonic() - self.last)
        time.sleep(0.02)


def fit_with_outage(work: Path, uri: str, monkeypatch: Any, outage: Outage, **kwargs: Any) -> Sent:
    """Train while the server has an outage; return the expected values."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    sent = Sent(interval=1)
    hooks = MlflowLoggerHook("digits", interval=1, **kwargs), sent, outage
    fit(work, *hooks, epochs=1, batches=60)
    return sent


@pytest.mark.slow
def test_every_point_arrives_after_a_kill_of_the_server(
    server: Server, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(server, kill=20, start=45)
    sent = fit_with_outage(work, server.uri, monkeypatch, outage, timeout=30.0)
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
def test_what_a_dead_server_lacks_is_replayed_into_the_run(
    server: Server, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = fit_with_outage(
        work, server.uri, monkeypatch, Outage(server, kill=20), timeout=0.5, log_model=False
    )
    some = points(server.folder / "mlflow.db")
    assert 0 < len(some) < len(sent.rows)
    (path,) = work.glob("spool/*.jsonl")
    server.start()
    replay_as_told(caplog)
    assert points(server.folder / "mlflow.db") == sent.rows
    run = run_of(client_of(server.folder / "mlflow.db"))  # a single run
    assert run.info.status == "FINISHED"
    assert not path.exists()
