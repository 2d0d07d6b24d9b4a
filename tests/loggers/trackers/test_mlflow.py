"""MLflow with its real client: what was logged is read back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.loggers.delivery.spool import read_spool
from lightning_hooks.loggers.trackers.mlflow import MlflowLoggerHook, MlflowWriter
from support.logs.trackers import Crash, Sent, Tuned, client_of, fit, points, run_of, warnings_in
from support.training import TinyModule

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the client's own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


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
    (logged,) = client.search_logged_models([run.info.experiment_id])
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
    module = fit(work, MlflowLoggerHook(interval=1, timeout=0.5), epochs=1)
    assert len(module.losses) == 4
    (warning,) = warnings_in(caplog)
    assert warning.startswith("MlflowLoggerHook: mlflow cannot be started (MlflowException: ")


def test_departure_mlflow_is_an_sqlite_file_and_its_global_state_stays(work: Path) -> None:
    import mlflow

    before = mlflow.get_tracking_uri()
    fit(work, MlflowLoggerHook(interval=2, log_model=False), epochs=1)
    assert points(work / "mlflow.db").keys() == {2, 4, 5}
    assert mlflow.get_tracking_uri() == before
    assert not mlflow.is_tracking_uri_set()


def test_departure_mlflow_has_the_model_without_a_wrapper(work: Path, capfd: Any) -> None:
    import mlflow

    fit(work, MlflowLoggerHook(interval=2), epochs=1)
    assert "serialization_format" not in capfd.readouterr().err  # no argument of the hook's
    client = client_of(work / "mlflow.db")
    (logged,) = client.search_logged_models([run_of(client).info.experiment_id])
    assert type(mlflow.pytorch.load_model(logged.artifact_location)) is TinyModule


def test_departure_mlflow_uses_a_run_that_is_given(work: Path) -> None:
    import mlflow

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
    import mlflow

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
    assert "lr" in read_spool(str(path))[1][0].params


@pytest.mark.parametrize("status", [401, 403, 404, 407, 408, 429, 500, 503])
def test_an_error_of_a_proxy_or_a_token_may_pass(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import RestException

    error = RestException({"error_code": "X", "message": "no"})
    monkeypatch.setattr(error, "get_http_status_code", lambda: status)
    assert not MlflowWriter.is_permanent(error)
