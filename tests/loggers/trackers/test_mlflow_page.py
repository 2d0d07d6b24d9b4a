"""What MLflow's page shows of a run: who began it, its model, images, tables and system metrics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import MlflowLoggerHook, SystemMetricsHook, log_image, log_table
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter
from lightning_hooks.utils.samples import Table
from support.logs.trackers import client_of, fit, points, run_of, warnings_in
from support.training import TinyModule

mlflow = pytest.importorskip("mlflow")
registry = pytest.importorskip("mlflow.tracking.context.registry")
pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the client's own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


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
    """Has an example of its input."""

    example_input_array = torch.zeros(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def test_the_model_is_a_model_of_the_run_with_signature_and_requirements(work: Path) -> None:
    fit(work, MlflowLoggerHook(), module=Sized, epochs=1)
    client = client_of(work / "mlflow.db")
    run = run_of(client)
    (model,) = client.search_logged_models([run.info.experiment_id])
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
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")  # what the page says to write
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
    assert sorted(path.partition("+timestamp")[0] for path in paths if path.endswith("png")) == [
        "images/val~sample+step+5",
        "images/val~sample+step+9",
    ]
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    table = mlflow.MlflowClient().load_table(
        run.info.experiment_id, "tables/val/worst_ 3/9.json", [run.info.run_id]
    )
    assert table["id"].tolist() == [1, 2]
    assert table["label"].tolist()[0] == "cat"


def test_a_sample_is_stored_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    images, tables = {"a b": torch.ones(3, 4, 5).numpy()}, {"t": Table(("id",), ((1,),))}
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
    assert len(writer.client.list_artifacts(writer.run, "images")) == 2  # and its preview
    mlflow.set_tracking_uri(uri)
    assert mlflow.load_table("tables/t/3.json", [writer.run])["id"].tolist() == [1]


def test_autolog_beside_the_hook_is_said_once(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    mlflow.pytorch.autolog(log_models=False)
    try:
        fit(work, MlflowLoggerHook(log_model=False), epochs=1)
    finally:
        mlflow.pytorch.autolog(disable=True)
    (said,) = [text for text in warnings_in(caplog) if "autolog" in text]
    assert said.startswith("MlflowLoggerHook: mlflow.autolog logs this training too")
    if "Autologging is known to be compatible" not in caplog.text:  # with an older Lightning
        names = run_of(client_of(work / "mlflow.db")).data.metrics  # of both, in one run
        assert {"train/loss", "train_loss"} <= names.keys()
    caplog.clear()
    fit(work, MlflowLoggerHook(log_model=False), epochs=1)
    assert not [text for text in warnings_in(caplog) if "autolog" in text]
    assert os.environ.get("MLFLOW_TRACKING_URI") == f"sqlite:///{work}/mlflow.db"  # as it was
