"""``LightningLoggerHook`` with images, tables and slow starts, by Lightning's own loggers."""

from __future__ import annotations

import importlib
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger

from lightning_hooks import LightningLoggerHook, log_image, log_table
from support import training
from support.logs.trackers import client_of, read_wandb, run_of, warnings_in
from support.training import TinyModule

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

IMAGE = torch.linspace(0, 1, 60).reshape(3, 4, 5)
WORST = {"id": [1, 2], "loss": [0.5, 0.25]}


class Sampling(TinyModule):
    """Logs an image and a table in each validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))
        log_image(self, "sample", IMAGE)
        log_table(self, "worst", WORST)


def fit(work: Path, hook: Any, logger: Any = False) -> None:
    options = {"val": 1, "max_epochs": 1, "num_sanity_val_steps": 0, "logger": logger}
    training.fit(work.parent, hook, work_dir=str(work), module=Sampling, **options)


@pytest.mark.parametrize("shares", [False, True])
def test_tensorboard_has_images_and_tables(tmp_path: Path, shares: bool) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path)
    hook = LightningLoggerHook(None if shares else logger, interval=2, strict=True)
    fit(tmp_path / "work", hook, logger if shares else False)
    found = accumulator.EventAccumulator(logger.log_dir)
    found.Reload()
    (image,) = found.Images("val/sample")
    assert (image.step, image.height, image.width) == (3 if shares else 5, 4, 5)
    assert "val/worst/text_summary" in found.Tags()["tensors"]


@pytest.mark.slow
def test_mlflow_has_images_and_tables(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLFlowLogger(tracking_uri=uri, artifact_location=str(tmp_path / "artifacts"))
    fit(tmp_path / "work", LightningLoggerHook(logger, interval=2, strict=True, timeout=60))
    client = client_of(tmp_path / "mlflow.db")
    run = run_of(client).info
    assert [*client.list_artifacts(run.run_id, "images")]
    table = client.load_table(run.experiment_id, "tables/val/worst/5.json", [run.run_id])
    assert table["loss"].tolist() == [0.5, 0.25]


@pytest.mark.slow
def test_wandb_has_images_and_tables(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    fit(tmp_path / "work", LightningLoggerHook(logger, interval=2, strict=True, timeout=60))
    wandb.finish()
    rows = [record["history"]["item"] for record in read_wandb(tmp_path) if "history" in record]
    kinds = {key: row[key] for row in rows for key in row if key.endswith("._type")}
    assert kinds == {"val/sample._type": "images/separated", "val/worst._type": "table-file"}


@pytest.mark.slow
def test_comet_offline_is_waited_for_and_has_images_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("comet_ml")
    monkeypatch.setenv("COMET_START_ONLINE", "0")
    folder = {"offline_directory": str(tmp_path / "comet")}
    comet = {"type": "CometLogger", "project": "digits", **folder}
    hook = LightningLoggerHook(comet, interval=2, strict=True, timeout=1.0)
    fit(tmp_path / "work", hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    hook.client_run[0].experiment.end()
    (archive,) = (tmp_path / "comet").glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        text = " ".join(files.namelist()) + files.read("messages.json").decode()
    assert all(word in text for word in ("train/loss", "val/sample", "val_worst_5.csv"))


def test_swanlab_offline_has_images_and_tables(tmp_path: Path) -> None:
    swanlab = pytest.importorskip("swanlab")
    name = "swanlab.integration.pytorch_lightning.SwanLabLogger"
    folder = {"log_dir": str(tmp_path / "swan"), "mode": "offline"}
    hook = LightningLoggerHook(
        {"type": name, "project": "digits", **folder}, interval=2, strict=True, timeout=60
    )
    fit(tmp_path / "work", hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    swanlab.finish()
    (run,) = (tmp_path / "swan").glob("run-*")
    assert [*run.glob("media/image/005-*.png")]
    stored = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert all(word in stored for word in (b"train/loss", b"val/sample", b"| id | loss |"))


def test_aim_has_numbers_images_and_tables(tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    logger = {"type": "aim.pytorch_lightning.AimLogger", "repo": str(tmp_path / "repo")}
    hook = LightningLoggerHook(logger, interval=2, strict=True, timeout=60)
    fit(tmp_path / "work", hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    (key,) = aim.Repo(str(tmp_path / "repo")).list_all_runs()
    run = aim.Run(key, repo=str(tmp_path / "repo"), system_tracking_interval=None)
    context = importlib.import_module("aim.storage.context").Context({})
    losses = run.get_metric("train/loss", context).dataframe()
    (image,) = run.get_image_sequence("val/sample", context).values.values_list()
    (table,) = run.get_text_sequence("val/worst", context).values.values_list()
    assert sorted(losses["step"]) == [2, 4]
    assert image.to_pil_image().size == (5, 4)
    assert table.data.startswith("| id | loss |")
    run.close()


class Slow(Logger):
    """Needs longer to start than the hook waits for the rest."""

    name, version = "slow", 0

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.steps = seconds, list[Any]()

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        time.sleep(self.seconds)
        self.seconds = 0.0
        self.steps.append(step)

    def log_hyperparams(self, params: Any, *args: Any) -> None: ...


def test_a_slow_start_is_waited_for_as_files_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(seconds=3.0)
    fit(tmp_path / "work", LightningLoggerHook(slow, interval=2, timeout=0.3))
    assert slow.steps == [2, 4, 5]
    said = [text for text in warnings_in(caplog) if "images" not in text and "tables" not in text]
    assert said == []


def test_a_logger_that_holds_no_images_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path / "work", LightningLoggerHook(CSVLogger(tmp_path), interval=2))
    assert any("no logger of this run holds images" in text for text in warnings_in(caplog))
    assert json.dumps([*tmp_path.rglob("*.png")]) == "[]"
