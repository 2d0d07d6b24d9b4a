"""Two hooks of one tracker in a Trainer, and a client that starts too late."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers.logger import Logger

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    LightningLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    VisdomLoggerHook,
)
from lightning_hooks.loggers.delivery.writer import one_at_a_time
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.neptune import read_neptune
from lightning_hooks.loggers.trackers.packages import environment
from support.logs.kept import KeepHook, Kept
from support.logs.trackers import (
    Sent,
    close,
    fit,
    points,
    read_clearml,
    read_dvclive,
    read_tensorboard,
    read_visdom_log,
    warnings_in,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients' own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

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
    of_runs = (read_neptune(str(path))[0] for path in work.glob(".neptune/offline/run__*"))
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
    """A logger whose server does not answer."""

    name = "down"
    version = 0

    @property
    def experiment(self) -> Any:
        raise ConnectionError("no answer")

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.experiment.log(metrics)

    def log_hyperparams(self, params: Any, *args: Any) -> None: ...


def test_a_logger_without_a_server_costs_no_other_logger_a_version(work: Path) -> None:
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
def test_folders_of_the_user_stay_and_a_test_goes_to_the_folder_of_its_hook(
    tmp_path: Path, again: str
) -> None:
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
    """Let a client's function wait; yield what lets it go on, and waits for the sender's end."""
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
    _, failed, _ = read_neptune(str(path))
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


def test_a_client_that_hangs_keeps_the_others_waiting_for_a_moment_only() -> None:
    waits = list[float]()

    def start(timeout: float) -> None:
        before = time.monotonic()
        with one_at_a_time("kept", timeout=timeout):
            waits.append(time.monotonic() - before)

    with one_at_a_time("kept"):  # by a start that never returns
        start(timeout=0.5)
    start(timeout=60.0)
    start(timeout=60.0)
    assert 0.5 <= waits[0] < 30
    assert max(waits[1:]) < 0.5
