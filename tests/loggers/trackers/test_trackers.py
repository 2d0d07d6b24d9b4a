"""Trackers with their real clients, offline or embedded: what was logged is read back."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import Hook
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.replay import read
from lightning_hooks.loggers.text import TextLoggerHook
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.mlflow import MlflowLoggerHook
from lightning_hooks.loggers.trackers.neptune import NeptuneLoggerHook
from lightning_hooks.loggers.trackers.wandb import WandbLoggerHook, has_wandb_key
from support.logs.trackers import (
    Sent,
    client_of,
    exit_code,
    fit,
    history,
    points,
    read_neptune,
    read_wandb,
    run_of,
    series,
)
from support.training import TinyModule

HOOKS = [WandbLoggerHook, MlflowLoggerHook, NeptuneLoggerHook]
pytestmark = pytest.mark.usefixtures("nothing_elsewhere")


class Crash(Hook):
    """Raises in the second epoch."""

    def before_train_epoch(self, runner: Any) -> None:
        if runner.epoch:
            raise RuntimeError("crash")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "ooks" in r.name]


# -- Weights & Biases --------------------------------------------------------------------------


def test_wandb_run_is_read_back(work: Path) -> None:
    (work / "config.py").write_text("lr = 0.1")
    sent = Sent(interval=2)
    hook = WandbLoggerHook(
        init_kwargs={"project": "digits", "config": {"seed": 7}},
        interval=2,
        define_metric_cfg={"val/val_loss": "min"},
    )
    fit(work, sent, hook)
    records = read_wandb(work)
    assert history(records) == sent.rows
    assert list(sent.rows) == [2, 4, 5, 6, 8, 9]
    assert exit_code(records) == 0
    text = json.dumps(records)
    assert '"project": "digits"' in text
    assert "config.py" in text  # the artifact
    assert os.listdir() == []


def test_departure_wandb_drops_no_row_when_validation_and_training_share_a_step(
    work: Path,
) -> None:
    sent = Sent(interval=1)
    fit(work, sent, WandbLoggerHook(interval=1, log_artifact=False))
    rows = history(read_wandb(work))
    assert rows == sent.rows
    assert {"val/val_loss", "train/loss"} <= rows[5].keys()


def test_wandb_without_step_logs_it_as_a_value(work: Path) -> None:
    sent = Sent(interval=2)
    fit(work, sent, WandbLoggerHook(interval=2, with_step=False, log_artifact=False))
    rows = list(history(read_wandb(work)).values())
    assert rows == [{**row, "global_step": step} for step, row in sent.rows.items()]


def test_departure_wandb_is_offline_when_nothing_is_configured(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    fit(work, WandbLoggerHook(interval=2, log_artifact=False), epochs=1)
    assert len(history(read_wandb(work))) == 3


def test_a_wandb_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_wandb_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert has_wandb_key()
    (tmp_path / "netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert has_wandb_key()


def test_departure_a_wandb_run_of_the_program_is_used_and_left_open(work: Path) -> None:
    import wandb

    with wandb.init(dir=str(work), settings={"console": "off"}) as run:
        fit(work, WandbLoggerHook(interval=2, log_artifact=False), epochs=1)
        run.log({"mine": 1})
    rows = list(history(read_wandb(work)).values())
    assert [row.get("global_step") for row in rows] == [2, 4, 5, None]
    assert rows[-1] == {"mine": 1}


def test_a_failed_training_is_a_failed_wandb_run(work: Path) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, WandbLoggerHook(interval=2), Crash())
    records = read_wandb(work)
    assert exit_code(records) == 1
    assert len(history(records)) == 3


def test_an_unknown_summary_is_refused() -> None:
    match = r"define_metric_cfg\['acc'\] must be one of min, .*, got 'median'"
    with pytest.raises(ValueError, match=match):
        WandbLoggerHook(define_metric_cfg={"acc": "median"})


# -- MLflow ------------------------------------------------------------------------------------


def test_mlflow_run_is_read_back(work: Path) -> None:
    import mlflow

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
    folder = run.info.artifact_uri.removeprefix("file://")
    assert Path(folder).is_relative_to(work)
    model = mlflow.pytorch.load_model(f"{folder}/models")
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


def test_departure_an_active_mlflow_run_is_used_and_left_open(work: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    try:
        with mlflow.start_run() as run:
            fit(work, MlflowLoggerHook(tags={"a": 1}, interval=2, log_model=False), epochs=1)
            mlflow.log_metric("mine", 1.0)
    finally:
        mlflow.set_tracking_uri(None)
    found = run_of(client_of(work / "mlflow.db"))
    assert found.info.run_id == run.info.run_id
    assert found.data.tags["a"] == "1"
    assert {"mine", "train/loss"} <= found.data.metrics.keys()


class Symbols(TinyModule):
    """Logs under a name that MLflow refuses."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("AP@50", 0.5)


def test_departure_mlflow_keys_are_mended_and_a_failed_training_is_a_failed_run(
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
    module = fit(work, MlflowLoggerHook(interval=1))
    assert len(module.losses) == 8
    (warning,) = warnings_in(caplog)
    assert warning.startswith("MlflowLoggerHook: mlflow cannot be started (MlflowException: ")


# -- Neptune -----------------------------------------------------------------------------------


def test_neptune_run_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    fit(work, sent, NeptuneLoggerHook({"name": "digits"}, interval=2))
    operations = read_neptune(work)
    assert series(operations) == sent.rows
    (name,) = [x["value"] for x in operations if x.get("path") == ["sys", "name"]]
    assert name == "digits"
    (warning,) = warnings_in(caplog)
    assert "Neptune's hosted service closed in March 2026" in warning
    assert os.listdir() == []


def test_departure_neptune_without_step_appends_each_value_to_its_own_series(work: Path) -> None:
    fit(work, NeptuneLoggerHook(interval=2, with_step=False), epochs=1)
    (row,) = series(read_neptune(work)).values()  # all without step
    assert row["global_step"] == 5
    assert row.keys() >= {"train/loss", "val/val_loss", "learning_rate"}


def test_a_failed_training_is_a_failed_neptune_run(work: Path) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, NeptuneLoggerHook(interval=2), Crash())
    operations = read_neptune(work)
    assert len(series(operations)) == 3
    assert [x["value"] for x in operations if x.get("path") == ["sys", "failed"]][-1] is True


def test_departure_neptune_is_offline_where_no_deployment_answers(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://neptune.invalid"
    token = {"api_address": address, "api_url": address, "api_key": "secret"}
    monkeypatch.setenv("NEPTUNE_API_TOKEN", b64encode(json.dumps(token).encode()).decode())
    sent = Sent(interval=2)
    hook = NeptuneLoggerHook({"mode": "async", "project": "a/b"}, interval=2, timeout=60)
    fit(work, sent, hook, epochs=1)
    assert series(read_neptune(work)) == sent.rows
    (warning,) = warnings_in(caplog)
    assert "none answers" in warning
    assert "the run is offline" in warning


def test_w_and_b_that_cannot_be_reached_stops_neither_training_nor_what_is_logged(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = WandbLoggerHook({"mode": "online"}, interval=1, timeout=1.0)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    hook.init_kwargs["settings"] = {"init_timeout": 2}
    module = fit(work, hook, epochs=1)
    assert len(module.losses) == 4
    assert len(warnings_in(caplog)) == 1
    (path,) = work.glob("spool/*.jsonl")
    assert "a" * 40 not in path.read_text()
    assert len(read(str(path))[1]) == 5
    # W&B's service was told to end: the process would wait for it, for as long as it tries
    assert not [name for name in os.environ if name.startswith("WANDB_SERVICE")]


# -- all of them -------------------------------------------------------------------------------


def test_all_trackers_at_once_have_the_same_numbers(work: Path) -> None:
    sent = Sent(interval=1)
    fit(
        work,
        NeptuneLoggerHook(interval=1),
        MlflowLoggerHook(interval=1, log_model=False),
        sent,
        TextLoggerHook(interval=1),
        WandbLoggerHook(interval=1),
    )
    assert history(read_wandb(work)) == points(work / "mlflow.db") == sent.rows
    assert series(read_neptune(work)) == sent.rows


@pytest.mark.parametrize("hook", HOOKS)
def test_a_missing_package_fails_at_construction_and_names_the_extra(
    hook: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    match = rf'{hook.__name__} needs .*: pip install "lightning_hooks\[{hook.package}\]"'
    with pytest.raises(ImportError, match=match):
        hook()


@pytest.mark.parametrize("hook", HOOKS)
def test_a_tracker_logs_two_fits_and_pickles(
    hook: type[Any], work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = pickle.loads(pickle.dumps(hook(interval=2)))
    fit(work, one, epochs=1)
    fit(work, one, epochs=1)
    assert not [text for text in warnings_in(caplog) if "cannot" in text]
    assert pickle.loads(pickle.dumps(one)).interval == 2


class FragileWriter(Writer):
    """A writer that raises at one point: what no further attempt mends."""

    name = "fragile"

    def __init__(self, run: Fragile) -> None:
        self.hook = run
        self.hook.reach("open")

    @classmethod
    def connect(cls, *, run: Any = None) -> FragileWriter:
        return cls(run)

    def log(self, record: Record) -> None:
        self.hook.reach("log")

    def send_files(self, files: Any) -> None:
        self.hook.reach("files")

    def close(self, failed: bool = False) -> None:
        self.hook.reach("close")


class Fragile(TrackerHook):
    """A tracker with such a writer."""

    package = "nothing"
    writer_class = FragileWriter

    def __init__(self, point: str) -> None:
        super().__init__(interval=1, timeout=5)
        self.point = point
        self.seen: list[str] = []

    def reach(self, point: str) -> None:
        self.seen.append(point)
        if point == self.point:
            raise ValueError(f"broken at {point}")

    def target(self, runner: Any) -> dict[str, Any]:
        return {}

    def active_run(self) -> Any:
        return self

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        return [(__file__, "test.py")]


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        ("open", ["open"]),
        ("log", ["open", "log", "close"]),
        ("files", ["open", *["log"] * 5, "files", "close"]),
        ("close", ["open", *["log"] * 5, "files", "close"]),
    ],
)
def test_departure_a_backend_that_raises_costs_one_warning(
    point: str, seen: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Fragile(point)
    module = fit(tmp_path / "work", hook, epochs=1)
    assert len(module.losses) == 4
    assert hook.seen == seen
    (warning,) = warnings_in(caplog)
    assert f"(ValueError: broken at {point}); training goes on without it" in warning


class Evaluation(Hook):
    """Reports what is no number too."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output.update(acc=torch.tensor(0.5), recalls=[0.1, 0.2], best="cat")
        runner.log_buffer.ready = True


def test_departure_only_numbers_are_sent(work: Path) -> None:
    fit(work, Evaluation(), MlflowLoggerHook(interval=9, log_model=False), epochs=1)
    row = points(work / "mlflow.db")[5]
    assert row["val/acc"] == 0.5
    assert row.keys() == {"val/acc", "val/val_loss", "learning_rate", "momentum"}
