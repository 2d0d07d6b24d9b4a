"""The run that receives the values: an open run, a run for each of two hooks, a resumed run."""

from __future__ import annotations

import csv
import inspect
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers.logger import Logger

from lightning_hooks import (
    CheckpointHook,
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    LightningLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.delivery.writer import one_at_a_time
from lightning_hooks.loggers.trackers import neptune as neptune_files
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter
from lightning_hooks.loggers.trackers.packages import environment
from support import processes as in_processes
from support.logs import trackers
from support.logs.kept import KeepHook, Kept
from support.logs.trackers import (
    REAL_CLIENTS,
    Sent,
    Tuned,
    client_of,
    close,
    fit,
    history,
    logged_models,
    points,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_visdom_log,
    read_wandb,
    run_of,
    warnings_in,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    *REAL_CLIENTS,
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint"),
]


def test_departure_mlflow(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    hook = MlflowLoggerHook(tags={"who": "hook"}, run_name="hook", log_model=False)
    try:
        with mlflow.start_run(run_name="mine", tags={"who": "me"}):
            mlflow.log_param("lr", 7)
            fit(work, hook, module=Tuned(0.2, {"size": 8}), epochs=1)
            mlflow.log_metric("mine", 1.0)  # the run is left open
    finally:
        mlflow.set_tracking_uri(None)
    run = run_of(client_of(work / "mlflow.db"))
    assert (run.info.run_name, run.data.tags["who"]) == ("mine", "me")
    assert run.data.params == {"lr": "7", "data/size": "8"}
    assert {"mine", "val/val_loss"} <= run.data.metrics.keys()
    said = warnings_in(caplog)
    assert said[0] == "MlflowLoggerHook: the run was open before: run_name, tags have no effect"
    assert "MLflow keeps the first value of a parameter: lr " in caplog.text


def test_departure_wandb(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    import wandb

    config = {"lr": 7, "data": {"size": 4}}
    own = {"name": "mine", "mode": "offline", "settings": {"console": "off"}}
    with wandb.init(dir=str(work), config=config, **own) as run:
        hook = WandbLoggerHook({"config": {"seed": 3}}, name="hook", tags=["a"], log_artifact=False)
        fit(work, hook, module=Tuned(0.2, {"size": 8, "kind": "a"}), epochs=1)
        assert (run.name, run.tags) == ("mine", ())
        data = {"size": 4, "kind": "a"}
        assert dict(run.config) == {"lr": 7, "data": data, "seed": 3}
        run.log({"mine": 1})
    rows = list(history(read_wandb(work)).values())
    assert [row.get("global_step") for row in rows] == [4, 5, None]
    assert rows[-1] == {"mine": 1}
    (said,) = warnings_in(caplog)
    assert said == "WandbLoggerHook: the run was open before: name, tags have no effect"


class Counts(TinyModule):
    """A module that logs by ``mlflow.log_metric``."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        import mlflow

        mlflow.log_metric("mine", batch_idx)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("is_open", [False, True])
def test_calls_of_mlflow_by_the_module_without_a_run(
    work: Path, caplog: pytest.LogCaptureFixture, is_open: bool
) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    try:
        if is_open:
            mlflow.start_run()
        fit(work, MlflowLoggerHook(interval=2, log_model=False), module=Counts, epochs=1)
        theirs = mlflow.active_run().info.run_id
    finally:
        mlflow.end_run()
        mlflow.set_tracking_uri(None)
    if is_open:
        assert {"mine", "train/loss"} <= run_of(client_of(work / "mlflow.db")).data.metrics.keys()
        assert not warnings_in(caplog)
    else:
        (said,) = warnings_in(caplog)
        assert f"the module's own calls of mlflow log to run {theirs}, which they have" in said
        assert "mlflow.start_run() before the fit" in said


def test_clearml(work: Path) -> None:
    clearml = pytest.importorskip("clearml")
    # a writing fork of this process would outlive the task and disturb later tests
    settings = pytest.importorskip("clearml.config").config_obj
    settings.set_overrides({"sdk": {"development": {"report_use_subprocess": False}}})
    clearml.Task.set_offline(True)
    task = clearml.Task.init("p", "mine", auto_connect_frameworks=False, reuse_last_task_id=False)
    try:
        task.connect({"lr": 7})
        fit(work, ClearMLLoggerHook(), module=Tuned(0.2, {"size": 8}), epochs=1)
        found = {k: v for k, v in task.get_parameters().items() if k.startswith("General/")}
        assert found == {"General/lr": "7", "General/data/size": "8"}
    finally:
        task.close()


def test_dvclive(work: Path) -> None:
    dvclive = pytest.importorskip("dvclive")
    live = dvclive.Live(str(work / "live"), save_dvc_exp=False, report=None, dvcyaml=None)
    live.log_params({"lr": 7})
    fit(work, DvcliveLoggerHook(run=live), module=Tuned(0.2, {"size": 8}), epochs=1)
    assert (work / "live" / "params.yaml").read_text().split() == ["lr:", "7", "data/size:", "8"]


def test_neptune(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neptune = pytest.importorskip("neptune")
    monkeypatch.setenv("NEPTUNE_DATA_DIRECTORY", str(work / ".neptune"))
    run = neptune.init_run(mode="offline", capture_hardware_metrics=False, git_ref=False)
    run["parameters/lr"] = 7
    fit(work, NeptuneLoggerHook(run=run), module=Tuned(0.2, {"size": 8}), epochs=1)
    run.stop()
    stored: dict[str, Any] = {}
    for operation in read_neptune(work):
        if operation["path"][0] == "parameters" and operation["type"].startswith("Assign"):
            stored.setdefault("/".join(operation["path"][1:]), []).append(operation["value"])
    assert stored == {"lr": [7], "data/size": [8]}


# -- runs named by environment variables --


def test_mlflows_run_of_a_job_gets_one_fit(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = trackers.client_of(work / "mlflow.db")
    job = client.create_run("0", run_name="job").info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{work}/mlflow.db")
    monkeypatch.setenv("MLFLOW_RUN_ID", job)
    for epochs in (1, 2):
        fit(work, MlflowLoggerHook(log_model=False), epochs=epochs)
    later, first = client.search_runs(["0"])
    assert (first.info.run_id, first.info.status) == (job, "FINISHED")
    assert (first.data.metrics["epoch"], later.data.metrics["epoch"]) == (1, 2)


def test_a_run_of_a_job_that_is_not_there_is_named(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    fit(work, MlflowLoggerHook("digits", log_model=False), epochs=1)
    assert trackers.run_of(trackers.client_of(work / "mlflow.db")).data.metrics
    ignored, missing = warnings_in(caplog)
    assert "MLFLOW_RUN_ID names a run, so exp_name has no effect" in ignored
    assert f"run {'0' * 32} is not in this store: a new run begins" in missing


@pytest.mark.parametrize("variable", ["MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"])
def test_mlflows_experiment_of_a_job(
    work: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    client = trackers.client_of(work / "mlflow.db")
    number = client.create_experiment("job")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{work}/mlflow.db")
    monkeypatch.setenv(variable, number if variable.endswith("ID") else "job")
    fit(work, MlflowLoggerHook(log_model=False), epochs=1)
    assert trackers.run_of(client).info.experiment_id == number


def test_wandbs_variables_name_its_run(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    wandb.teardown()  # the client reads its variables once per process
    named = {"RUN_ID": "job7", "SWEEP_ID": "s1", "PROJECT": "digits", "NAME": "seven"}
    for name, value in named.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    fit(work, WandbLoggerHook(log_artifact=False), epochs=1)
    (run,) = [record["run"] for record in trackers.read_wandb(work) if record["type"] == "run"]
    found = [run[name] for name in ("run_id", "sweep_id", "project", "display_name")]
    assert found == [*named.values()]


def test_mlflows_registry_is_the_clients(
    work: Path, empty_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    shutil.copy(empty_db, work / "registry.db")
    registry = f"sqlite:///{work}/registry.db"
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", registry)
    fit(work, MlflowLoggerHook(), epochs=1)
    client = client_of(work / "mlflow.db")
    (model,) = logged_models(client, [run_of(client).info.experiment_id])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{work}/mlflow.db")
    mlflow.register_model(f"models:/{model.model_id}", "digits")
    (version,) = mlflow.MlflowClient(registry_uri=registry).search_model_versions()
    assert (version.name, model.model_id in version.source) == ("digits", True)


@pytest.mark.parametrize(("variable", "kept"), [(None, {2}), ("true", {1, 2})])
def test_dvclives_variable_keeps_an_earlier_run(
    work: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, kept: set[int]
) -> None:
    pytest.importorskip("dvclive")
    folder = str(work / "live")
    fit(work, DvcliveLoggerHook(dir=folder), epochs=1)
    if variable is not None:
        monkeypatch.setenv("DVCLIVE_RESUME", variable)
    fit(work, DvcliveLoggerHook(dir=folder, interval=2, by_epoch=False), epochs=1, batches=2)
    assert read_dvclive(Path(folder)).keys() - {3} == kept


def test_dvclives_variable_names_the_experiment(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dvclive = pytest.importorskip("dvclive.dvc")
    if "DVC_EXP_NAME" not in inspect.getsource(dvclive):
        pytest.skip("this release of DVCLive does not read the variable")
    git = "git -c user.name=me -c user.email=me@here"
    commands = f"git init -q && {sys.executable} -m dvc -q init && {git} commit -q -m one"
    subprocess.run(commands, shell=True, check=True)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "me")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "me@here")
    monkeypatch.setenv("DVC_EXP_NAME", "seven")
    fit(work, DvcliveLoggerHook(dir="live", save_dvc_exp=True), epochs=1)
    references = subprocess.check_output(["git", "for-each-ref", "refs/exps"], text=True)
    assert "/seven\n" in references


TRACKIO = """
from lightning_hooks import TrackioLoggerHook
from support.training import TinyModule, make_loader, make_trainer

hook = TrackioLoggerHook(project="digits", interval=2, timeout=60, strict=True)
make_trainer("work", hook, max_epochs=1).fit(TinyModule(), make_loader(4))
"""


def test_trackios_variable_names_its_folder(work: Path) -> None:
    pytest.importorskip("trackio")
    variables = in_processes.environment(TRACKIO_DIR=str(work / "mine"))
    in_processes.Forks(["-c", TRACKIO], [variables], work).wait()
    with sqlite3.connect(work / "mine/digits.db") as connection:
        assert [step for (step,) in connection.execute("select step from metrics")] == [2, 4]


@pytest.mark.parametrize(
    ("hook", "variable", "given"),
    [
        (WandbLoggerHook, "WANDB_RESUME=auto", {"id": None}),
        (WandbLoggerHook, "WANDB_DIR=elsewhere", {"dir": None}),
        (WandbLoggerHook, "WANDB_MODE=disabled", {"mode": "disabled"}),
        (NeptuneLoggerHook, "NEPTUNE_CUSTOM_RUN_ID=job", {"custom_run_id": None}),
        (NeptuneLoggerHook, "NEPTUNE_PROJECT=a/b", {"project": None}),
        (NeptuneLoggerHook, "NEPTUNE_MODE=debug", {"mode": "debug"}),
        (ClearMLLoggerHook, "CLEARML_TASK_ID=0", {"continue_last_task": None}),
    ],
)
def test_a_client_chooses_by_its_variables(
    work: Path, monkeypatch: pytest.MonkeyPatch, hook: Any, variable: str, given: dict[str, Any]
) -> None:
    start = f"{hook._package}.{hook._start_function}"
    pytest.importorskip(start.partition(".")[0])
    calls: list[Any] = []

    def begin(**arguments: Any) -> None:
        calls.append(arguments)
        raise ValueError("enough")

    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setattr(start, begin)
    fit(work, hook(timeout=60.0), epochs=1)
    assert {name: calls[0].get(name) for name in given} == given


# -- two hooks of one tracker in a Trainer, and a client that starts late --

Rows = dict[int, dict[str, float]]


def tensorboard_runs(work: Path) -> list[Rows]:
    folders = {path.parent for path in work.glob("tf_logs/**/events.out.tfevents.*")}
    with_points = (read_tensorboard(folder)[0] for folder in folders)
    return [rows for rows in with_points if rows]


def visdom_runs(work: Path) -> list[Rows]:
    found = []
    for path in work.glob("visdom/*.log"):
        (apart := path.with_suffix("")).mkdir()
        found.append(read_visdom_log(path.rename(apart / path.name).parent))
    return found


def csv_runs(work: Path) -> list[Rows]:
    found = []
    for path in work.glob("lightning_logs/version_*/metrics.csv"):
        with path.open() as file:
            rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
        merged: Rows = {}
        for row in rows:
            merged.setdefault(int(row.pop("step")), {}).update(row)
        found.append(merged)
    return found


def neptune_runs(work: Path) -> list[Rows]:
    of_runs = (
        neptune_files.read_neptune(str(path))[0] for path in work.glob(".neptune/offline/run__*")
    )
    return [{r.step: dict(r.scalars) for r in records if r.scalars} for records in of_runs]


@pytest.mark.parametrize(
    ("package", "hook", "runs_of"),
    [
        ("tensorboard", lambda: TensorboardLoggerHook(interval=1), tensorboard_runs),
        ("visdom", lambda: VisdomLoggerHook(interval=1), visdom_runs),
        ("neptune", lambda: NeptuneLoggerHook(interval=1), neptune_runs),
        ("lightning", lambda: LightningLoggerHook({"type": "CSVLogger"}, interval=1), csv_runs),
    ],
)
def test_two_hooks_have_a_run_each(
    package: str, hook: Callable[[], TrackerHook], runs_of: Callable[[Path], list[Rows]], work: Path
) -> None:
    pytest.importorskip(package)
    sent = Sent(interval=1)
    fit(work, sent, hook(), hook())
    first, second = runs_of(work)
    assert close(first, sent.rows)
    assert close(second, sent.rows)


class Down(Logger):
    """A logger with an unreachable server."""

    name = "down"
    version = 0

    @property
    def experiment(self) -> Any:
        raise ConnectionError("no answer")

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.experiment.log(metrics)

    def log_hyperparams(self, params: Any, *args: Any) -> None: ...


def test_a_dead_logger_costs_no_other_logger_a_version(work: Path) -> None:
    loggers = [{"type": "CSVLogger"}, {"type": f"{__name__}.Down"}]
    fit(work, LightningLoggerHook(loggers, interval=1, timeout=0.1), epochs=1)
    assert [path.name for path in work.glob("lightning_logs/*")] == ["version_0"]


def test_two_dvclive_hooks_have_a_folder_each(work: Path) -> None:
    pytest.importorskip("dvclive")
    sent = Sent(interval=1, by_epoch=False)
    fit(work, sent, *(DvcliveLoggerHook(interval=1, by_epoch=False) for _ in range(2)))
    first, second = work.glob("dvclive*")
    assert close(read_dvclive(first), sent.rows)
    assert close(read_dvclive(second), sent.rows)
    lines = (work / "dvclive/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert len(lines) == 1 + 8  # each point once


def test_two_mlflow_hooks_have_a_run_each(work: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    sent = Sent(interval=1)
    fit(work, sent, *(MlflowLoggerHook(interval=1, log_model=False) for _ in range(2)))
    client = mlflow.MlflowClient(f"sqlite:///{work}/mlflow.db")
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    losses = [
        [m.step for m in client.get_metric_history(r.info.run_id, "train/loss")] for r in runs
    ]
    assert losses == [[*range(1, 9)], [*range(1, 9)]]
    assert points(work / "mlflow.db") == sent.rows
    assert mlflow.active_run() is None


class Meeting(Hook):
    """Waits in the second epoch until each tracker has a run."""

    def __init__(self, *trackers: TrackerHook) -> None:
        self.trackers = trackers

    def before_train_epoch(self, runner: Any) -> None:
        end = time.monotonic() + 60
        while runner.epoch and time.monotonic() < end:
            if all(tracker.client_run is not None for tracker in self.trackers):
                break
            time.sleep(0.05)


def test_two_clearml_hooks_share_the_task(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    clearml = pytest.importorskip("clearml")
    sent, one, two = Sent(interval=1), ClearMLLoggerHook(interval=2), ClearMLLoggerHook(interval=1)
    fit(work, sent, one, two, Meeting(one, two))
    assert read_clearml(work / "clearml").keys() == sent.rows.keys()
    for hook in (one, two):
        status = hook.status()
        assert (status["sent"], status["error"]) == (status["logged"], None)
    assert len([*work.glob("clearml/offline/*/task.json")]) == 1
    (said,) = warnings_in(caplog)
    assert said.endswith("ClearML has one task a process: the values go to another hook's task")
    assert clearml.Task.current_task() is None


@pytest.mark.parametrize("again", ["b", "link/"])
def test_a_test_goes_to_the_folder_of_its_hook(tmp_path: Path, again: str) -> None:
    pytest.importorskip("tensorboard")

    class Tested(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("acc", 0.5)

    (tmp_path / "link").symlink_to(tmp_path / "b")
    folders = [f"{tmp_path}/{name}" for name in ("a", "b", again)]
    hooks = [TensorboardLoggerHook(folder, interval=1) for folder in folders]
    trainer = make_trainer(tmp_path, *hooks)
    trainer.fit(Tested(), make_loader(), make_loader(2))
    trainer.test(Tested(), make_loader(), verbose=False)
    (apart,) = (path for path in (tmp_path / "b").iterdir() if path.is_dir())
    for folder in (tmp_path / "a", tmp_path / "b", apart):
        rows, _ = read_tensorboard(folder)
        tags = [tag for row in rows.values() for tag in row]
        assert (tags.count("train/loss"), tags.count("test/acc")) == (4, 1)


def test_a_variable_stays_until_the_last_thread_needs_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_THE_USER", "mine")
    first = environment(NEPTUNE_DATA_DIRECTORY="work", OF_THE_USER="ours")
    second = environment(NEPTUNE_DATA_DIRECTORY="work", OF_THE_USER="ours")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["NEPTUNE_DATA_DIRECTORY"] == "work"
    second.__exit__(None, None, None)
    assert "NEPTUNE_DATA_DIRECTORY" not in os.environ
    assert os.environ["OF_THE_USER"] == "mine"


@contextmanager
def late(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[Callable[[], None]]:
    """Block a function of a client; yield a function to release it and join the sender threads."""
    start, goes_on = getattr(owner, name), threading.Event()

    def start_late(*args: Any, **kwargs: Any) -> Any:
        goes_on.wait()
        return start(*args, **kwargs)

    def finish() -> None:
        goes_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("lightning_hooks "):
                thread.join(30)

    monkeypatch.setattr(owner, name, start_late)
    try:
        yield finish
    finally:
        finish()


def test_a_late_run_of_mlflow_is_ended(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    with late(monkeypatch, mlflow.MlflowClient, "create_run") as go_on:
        fit(work, MlflowLoggerHook(timeout=0.1, log_model=False), epochs=1)
        go_on()
    client = mlflow.MlflowClient(f"sqlite:///{work}/mlflow.db")
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.info.status == "FAILED"
    assert mlflow.active_run() is None


def test_a_late_task_of_clearml_is_closed(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clearml = pytest.importorskip("clearml")
    with late(monkeypatch, clearml.Task, "init") as go_on:
        fit(work, ClearMLLoggerHook(timeout=0.1), epochs=1)
        go_on()
    assert len([*work.glob("clearml/offline/*/task.json")]) == 1
    assert clearml.Task.current_task() is None


def test_a_late_run_of_neptune_is_stopped(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neptune = pytest.importorskip("neptune")
    with late(monkeypatch, neptune, "init_run") as go_on:
        fit(work, NeptuneLoggerHook(timeout=0.1), epochs=1)
        go_on()
    (path,) = work.glob(".neptune/offline/run__*")
    _, failed, _ = neptune_files.read_neptune(str(path))
    assert failed


def test_a_client_that_answers_too_late_is_closed(tmp_path: Path) -> None:
    goes_on = threading.Event()
    hook = KeepHook(lambda: Kept(lambda writer: (goes_on.wait(), None)[1]), timeout=0.1)
    fit(tmp_path / "work", hook, epochs=1)
    assert hook.kept.closed == []
    goes_on.set()
    end = time.monotonic() + 10
    while not hook.kept.closed and time.monotonic() < end:
        time.sleep(0.01)
    assert hook.kept.closed == [True]


def test_a_client_that_hangs_holds_the_others_up_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = list[float]()

    def start(patience: float) -> None:
        monkeypatch.setattr("lightning_hooks.loggers.delivery.writer.PATIENCE", patience)
        before = time.monotonic()
        with one_at_a_time("kept"):
            waits.append(time.monotonic() - before)

    with one_at_a_time("kept"):  # held by a start that never returns
        start(0.5)
    start(60.0)
    start(60.0)
    assert 0.5 <= waits[0] < 30
    assert max(waits[1:]) < 0.5


# -- records after a resume from an earlier checkpoint --


def run(work: Path, hook: Any, epochs: int, ckpt: str | None = None, **kwargs: Any) -> None:
    path = None if ckpt is None else str(work / ckpt)
    fit(work, CheckpointHook(2, False), hook, epochs=epochs, ckpt_path=path, **kwargs)


@pytest.mark.parametrize("ckpt", ["iter_4.pth", "iter_6.pth"])
def test_departure_tensorboard_takes_back_what_was_lost(work: Path, ckpt: str) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(work, TensorboardLoggerHook(interval=1, strict=True), epochs=3)
    run(work, TensorboardLoggerHook(interval=1, strict=True), epochs=3, ckpt=ckpt)
    reader = accumulator.EventAccumulator(str(work / "tf_logs"))
    reader.Reload()
    steps = Counter(event.step for event in reader.Scalars("train/loss"))
    done = int(ckpt[5])
    assert sorted(steps) == list(range(1, 13))
    # the step after an epoch is also the validation's, so the step and one point remain
    assert {step for step, times in steps.items() if times > 1} <= {done + 1}
    validated = [event.step for event in reader.Scalars("val/val_loss")]
    assert validated == sorted(set(validated))
    assert len(validated) == 3
    # TensorBoard reads files in order of their names, which begin with the second
    seconds = [file.name.split(".")[3] for file in (work / "tf_logs").iterdir()]
    assert len({*seconds}) == len(seconds) == 2


def test_in_a_given_mlflow_run_a_repeated_step_has_both_values(work: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{work}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    made = client.create_run("0")
    for value in (1.0, 2.0):
        writer = MlflowWriter.connect(uri=uri, run_id=made.info.run_id)
        from lightning_hooks.loggers.delivery.record import Record

        writer.write([Record(0, value, 7, {"loss": value})])
    history = client.get_metric_history(made.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(7, 1.0), (7, 2.0)]
    assert client.get_run(made.info.run_id).data.metrics["loss"] == 2.0


class Dies(Hook):
    """Raises an error after seven iterations."""

    priority = "VERY_LOW"

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter + 1 == 7:
            raise RuntimeError("the machine is gone")


def die_and_resume(work: Path, make: Any, ckpt: str = "iter_4.pth", *, host: bool = True) -> Any:
    """Train until an error at iteration 7 of 8, then resume from an earlier checkpoint."""

    def train(hook: Any, *others: Hook, ckpt: str | None = None) -> None:
        hook._synchronous = True  # the client starts before the first checkpoint
        hooks = [CheckpointHook(interval=2, by_epoch=False, out_dir=str(work)), hook, *others]
        options: dict[str, Any] = {"work_dir": str(work)}
        callbacks = (
            [HookAdapter(hooks, **options)] if host else [HookAdapter([], **options), *hooks]
        )
        trainer = make_trainer(work, *callbacks, max_epochs=2, enable_checkpointing=not host)
        path = None if ckpt is None else str(work / ckpt)
        trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=path)

    with pytest.raises(RuntimeError, match="the machine is gone"):
        train(make(), Dies())
    hook = make()
    train(hook, ckpt=ckpt)
    return hook


def steps_in_mlflow(work: Path) -> list[int]:
    with sqlite3.connect(work / "mlflow.db") as db:
        assert db.execute("select status from runs").fetchall() == [("FINISHED",)]
        rows = db.execute("select step from metrics where key = 'train/loss'").fetchall()
    return [step for (step,) in rows]


def steps_in_wandb(work: Path) -> list[int]:
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"))
    assert len({file.name for file in files}) == 1  # the run's id
    rows = [trackers.history(trackers.inspect_wandb(file)) for file in files]
    return [step for found in rows for step, row in found.items() if "train/loss" in row]


def steps_in_clearml(work: Path) -> list[int]:
    (path,) = work.glob("clearml/offline/*/metrics.jsonl")
    events = [event for line in path.read_text().splitlines() for event in json.loads(line)]
    return [event["iter"] for event in events if event["metric"] == "train/loss"]


def steps_in_dvclive(work: Path) -> list[int]:
    with (work / "dvclive/plots/metrics/train/loss.tsv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file, delimiter="\t")]


def steps_in_visdom(work: Path) -> list[int]:
    (path,) = work.glob("visdom/*.log")
    windows = [json.loads(line)[1] for line in path.read_text().splitlines()]
    lines = [each["data"][0]["x"] for each in windows if each["win"] == "train/loss"]
    return [int(step) for xs in lines for step in xs]


def steps_in_tensorboard(work: Path) -> list[int]:
    _, events = trackers.read_tensorboard(work / "tf_logs")
    return [event.step for event in events.Scalars("train/loss")]


BACKENDS = {
    "clearml": (ClearMLLoggerHook, {"timeout": 60.0}, steps_in_clearml),
    "dvclive": (DvcliveLoggerHook, {"by_epoch": False}, steps_in_dvclive),
    "mlflow": (MlflowLoggerHook, {"log_model": False}, steps_in_mlflow),
    "tensorboard": (TensorboardLoggerHook, {"by_epoch": False}, steps_in_tensorboard),
    "visdom": (VisdomLoggerHook, {}, steps_in_visdom),
    "wandb": (WandbLoggerHook, {"log_artifact": False}, steps_in_wandb),
}


SLOW = {"clearml", "dvclive", "wandb"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in BACKENDS]
)
def test_departure_a_resumed_run_continues_without_doubles(
    name: str, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "wandb" and find_spec("wandb.sdk.internal.datastore"):
        pytest.skip("before 0.29 W&B has no command that reads the rows of an offline run")
    cls, options, read = BACKENDS[name]
    die_and_resume(work, lambda: cls(interval=1, strict=True, **options), host=name != "mlflow")
    end = time.monotonic() + (20 if name == "clearml" else 0)  # the client's writes are late
    while len(read(work)) < 8 and time.monotonic() < end:
        time.sleep(0.1)
    assert sorted(read(work)) == list(range(1, 9))
    if name != "tensorboard":  # TensorBoard takes the points back and gets the points again
        (said,) = trackers.warnings_in(caplog)
        assert f"{name} has points of this run up to step 7" in said
        assert 'resume="never"' in said


def test_never_begins_a_run_of_its_own(work: Path) -> None:
    def make() -> Any:
        return MlflowLoggerHook(interval=1, strict=True, log_model=False, resume="never")

    die_and_resume(work, make)
    with sqlite3.connect(work / "mlflow.db") as db:
        query = "select run_uuid, step from metrics where key = 'train/loss'"
        runs = Counter(run for run, _ in db.execute(query))
    assert sorted(runs.values()) == [4, 7]


def test_never_gives_runs_in_files_folders_of_their_own(work: Path) -> None:
    options: dict[str, Any] = {"interval": 1, "by_epoch": False, "resume": "never"}
    die_and_resume(work, lambda: TensorboardLoggerHook(**options))
    (apart,) = [path for path in (work / "tf_logs").iterdir() if path.is_dir()]
    assert [*trackers.read_tensorboard(apart)[0]] == [5, 6, 7, 8]
    die_and_resume(work, lambda: DvcliveLoggerHook(**options))
    assert sorted(map(len, map(trackers.read_dvclive, work.glob("dvclive*")))) == [4, 7]


def test_another_word_for_resume_is_refused_with_the_closest() -> None:
    with pytest.raises(ValueError, match="did you mean 'never'"):
        TensorboardLoggerHook(resume="nevr")


def test_neptune_offline_goes_on_in_a_new_file(work: Path) -> None:
    die_and_resume(work, lambda: NeptuneLoggerHook(interval=1, strict=True))
    folders = sorted((work / ".neptune/offline").iterdir())
    found = []
    for folder in folders:
        records = neptune_files.read_neptune(str(folder))[0]
        found.append([r.step for r in records if "train/loss" in r.scalars])
    assert sorted(found) == [[1, 2, 3, 4, 5, 6, 7], [5, 6, 7, 8]]


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize("by_epoch", [False, True])
def test_what_was_not_sent_is_sent_by_the_run_that_resumes(
    host: bool, by_epoch: bool, work: Path
) -> None:
    dead, alive = [True], []

    def trouble(writer: Kept) -> None:
        if dead[0] and writer.calls > 2:
            raise KeyError("no more")

    def make() -> TrackerHook:
        hook = KeepHook(lambda: Kept(trouble), by_epoch=by_epoch)
        alive.append(hook)
        dead[0] = len(alive) == 1
        return hook

    die_and_resume(work, make, host=host)
    before, after = [
        [(r.step, name) for r in hook.kept.records for name in r.scalars if "/" in name]
        for hook in alive
    ]
    steps = [step for step, name in before + after if name == "train/loss"]
    assert steps == list(range(1, 9))
    counts = Counter(before + after)
    assert set(counts.values()) == {1}
    assert not list(work.glob("spool/*"))


def test_an_id_that_the_backend_had_not_given_yet_is_found(work: Path) -> None:
    """The checkpoint is written before MLflow has created the run."""
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    again = MlflowWriter.connect(uri=uri, label="1f", after=4)
    assert again.run == first.run
    assert MlflowWriter.connect(uri=uri, label="2f", after=4).run != first.run


def test_a_changed_parameter_stays_as_it_was_in_mlflow(work: Path) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    first.params({"lr": 0.1, "size": 3})
    again = MlflowWriter.connect(uri=uri, run_id=first.run, label="1f", after=4)
    again.params({"lr": 0.2, "size": 3, "new": 1})
    found = first.client.get_run(first.run).data.params
    assert found == {"lr": "0.1", "size": "3", "new": "1"}
    assert "lr of the run stays" in again.note


def test_a_run_that_was_deleted_in_mlflow_is_begun_anew(work: Path) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    first.client.delete_run(first.run)
    assert MlflowWriter.connect(uri=uri, run_id=first.run, label="1f", after=4).run != first.run
    assert MlflowWriter.connect(uri=uri, run_id="0" * 32, label="1f", after=4).run != first.run
