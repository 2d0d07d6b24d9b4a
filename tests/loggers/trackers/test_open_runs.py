"""A run that the program has opened: it keeps its name and tags, and gets what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    WandbLoggerHook,
)
from support.logs.trackers import (
    Tuned,
    client_of,
    fit,
    history,
    read_neptune,
    read_wandb,
    run_of,
    warnings_in,
)

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients' own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_departure_mlflow(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    hook = MlflowLoggerHook(tags={"who": "hook"}, run_name="hook", log_model=False)
    try:
        with mlflow.start_run(run_name="mine", tags={"who": "me"}):
            mlflow.log_param("lr", 7)
            fit(work, hook, module=Tuned(0.2, {"size": 8}), epochs=1)
            mlflow.log_metric("mine", 1.0)  # it is left open
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
    with wandb.init(dir=str(work), name="mine", config=config, settings={"console": "off"}) as run:
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


def test_clearml(work: Path) -> None:
    clearml = pytest.importorskip("clearml")
    # a fork of this process that writes would outlive the task, beside the next tests' tasks
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
