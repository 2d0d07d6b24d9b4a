"""Trackers compared with Lightning's loggers: names, steps and contents of a run."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_hooks import (
    CheckpointHook,
    DvcliveLoggerHook,
    LightningLoggerHook,
    TensorboardLoggerHook,
    log_image,
)
from support import training
from support.logs.kept import KeepHook
from support.logs.trackers import (
    REAL_CLIENTS,
    Tuned,
    client_of,
    close,
    history,
    in_hparams,
    inspect_wandb,
    logged_models,
    read_tensorboard,
)
from support.paths import ROOT
from support.processes import environment
from support.training import TinyModule, make_loader, make_trainer

pytest.importorskip("tensorboard")
pytestmark = REAL_CLIENTS


class Named(TinyModule):
    """A module with user-defined metric names."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        self.log("acc", float(batch_idx), on_step=True, on_epoch=True)
        log_image(self, "sample", np.zeros((3, 4, 4), np.uint8))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", self.loss(batch))


class Quiet(TinyModule):
    """Logs nothing itself."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(batch)


def fit(folder: Path, *hooks: Any, module: Any = Named, **options: Any) -> None:
    """Train for two epochs of four batches beside Lightning's own logger."""
    logger = CSVLogger(folder, name="csv", version=int("ckpt_path" in options))
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "log_every_n_steps": 1, **options}
    options |= {"work_dir": str(folder / "work"), "val": 2, "logger": logger}
    training.fit(folder, *hooks, module=module, **options)


def rows_of_lightning(folder: Path) -> dict[int, dict[str, float]]:
    """Return the values of Lightning's logger by step."""
    rows: dict[int, dict[str, float]] = {}
    with (folder / "csv/version_0/metrics.csv").open() as file:
        for row in csv.DictReader(file):
            found = {name: float(value) for name, value in row.items() if value}
            rows.setdefault(int(found.pop("step")), {}).update(found)
    return rows


RATES = "learning_rate", "momentum"


def test_names_steps_and_values_are_those_of_lightnings_logger(tmp_path: Path) -> None:
    fit(tmp_path, TensorboardLoggerHook(interval=1, names="lightning"))
    ours = read_tensorboard(tmp_path / "work/tf_logs")[0]
    assert all(row.pop("learning_rate") == pytest.approx(0.1) for row in ours.values())
    assert all(row.pop("momentum") == pytest.approx(0.9) for row in ours.values())
    assert close(ours, rows_of_lightning(tmp_path))
    assert {"train_loss", "acc_step", "acc_epoch", "val_acc", "epoch"} == ours[3].keys()


class WarmedUp(TinyModule):
    """A module that returns a logged value as the loss, and later the value plus 1."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        part = self.loss(batch)
        self.log("part", part)
        return part if self.global_step < 2 else part + 1


def test_a_part_that_is_the_loss_at_first_keeps_its_values(tmp_path: Path) -> None:
    hooks = TensorboardLoggerHook(interval=1, names="lightning"), LightningLoggerHook(interval=1)
    fit(tmp_path, *hooks, module=WarmedUp, max_epochs=1)
    ours = read_tensorboard(tmp_path / "work/tf_logs")[0]
    there = rows_of_lightning(tmp_path)
    parts = [row["part"] for row in there.values()]
    assert [row["part"] for row in ours.values()] == pytest.approx(parts)
    assert [row.get("train/loss") for row in there.values()][:2] == [None, None]
    assert there[3]["train/loss"] == pytest.approx(parts[3] + 1)
    sums = {step: row["train_loss"] for step, row in ours.items() if "train_loss" in row}
    assert sums == pytest.approx({step: ours[step]["part"] + 1 for step in (2, 3)})


@pytest.mark.parametrize("module", [Named, Quiet])
def test_the_names_of_mmcv_are_the_default(tmp_path: Path, module: Any) -> None:
    usual, named = KeepHook(interval=2), KeepHook(interval=2, names="lightning")
    fit(tmp_path, usual, named, module=module)
    (first, *_, last), mine = usual.kept.records, named.kept.records
    assert "train/loss" in {name for one in usual.kept.records for name in one.scalars}
    assert {"train/epoch", "val/epoch"}.isdisjoint(first.scalars)
    assert (first.step, last.scalars.get("epoch")) == (1 if module is Named else 2, 2.0)
    lines = {one.step: one.scalars for one in mine if one.scalars}
    assert {1, 3, 5, 7} >= lines.keys() >= {1, 5}
    assert {*lines[1]} - {*RATES} == {"train_loss", "epoch"} | ({"acc_step"} & {*lines[1]})
    if module is Named:
        assert {name for one in mine for name in one.images} == {"sample"}


def test_lightnings_steps_go_on_after_a_resume(tmp_path: Path) -> None:
    hook = TensorboardLoggerHook(interval=1, names="lightning")
    fit(tmp_path, hook, CheckpointHook(interval=1))
    whole = read_tensorboard(tmp_path / "work/tf_logs")[0]
    again = tmp_path / "again"
    fit(again, TensorboardLoggerHook(interval=1, names="lightning"), CheckpointHook(), max_epochs=1)
    hook = TensorboardLoggerHook(interval=1, names="lightning")
    fit(again, hook, ckpt_path=str(again / "work/epoch_1.pth"))
    assert read_tensorboard(again / "work/tf_logs")[0].keys() == whole.keys()


def test_lightning_s_own_epoch_is_not_logged_twice(tmp_path: Path) -> None:
    fit(tmp_path, LightningLoggerHook(interval=1, names="lightning"))
    epochs = [row["epoch"] for row in rows_of_lightning(tmp_path).values()]
    assert epochs == [0.0] * 4 + [1.0] * 4
    head = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert not any("/" in name for name in head)


def test_dvclive_s_files_have_lightning_s_steps(tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    fit(tmp_path, DvcliveLoggerHook(names="lightning"))
    lines = (tmp_path / "work/dvclive/plots/metrics/val_acc.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["step", "3", "7"]


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="names must be one of mmcv, lightning, got 'mine'"):
        TensorboardLoggerHook(names="mine")


# -- a killed and resumed training: the table of docs/families/writers.md --

PROGRAM = """
import os, signal, sys, time
import torch
import lightning_hooks as h
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from support.training import TinyModule, make_loader, make_trainer

kind, work, ckpt = sys.argv[1], sys.argv[2], sys.argv[3] or None
IMAGE, ROWS = torch.linspace(0, 1, 60).reshape(3, 4, 5), {"id": [1, 2], "label": ["cat", None]}


class Net(TinyModule):
    example_input_array = torch.zeros(1, 4)

    def __init__(self, lr=0.1, aug=None):
        super().__init__(lr)
        self.save_hyperparameters()

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        if ckpt is None and self.global_step == 6:
            time.sleep(8)  # what was logged has arrived by then
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", 0.5 + 0.1 * self.current_epoch)
        if batch_idx == 0 and kind.endswith("Hook"):
            h.log_image(self, "sample", IMAGE)
            h.log_table(self, "worst", ROWS)
        elif batch_idx == 0 and kind == "WandbLogger":
            # no tensor, for which the oldest W&B needs torchvision
            self.logger.log_image("sample", [IMAGE.permute(1, 2, 0).numpy()])
            self.logger.log_table("worst", [*ROWS], [[1, "cat"], [2, None]])

    def test_step(self, batch, batch_idx):
        self.log("test_acc", 0.25)


best, last = {"monitor": "val_acc", "mode": "max"}, {"save_last": True}
callbacks, logger = [ModelCheckpoint(work, **best, **last)], None
if kind.endswith("Hook"):
    tracker = getattr(h, kind)(interval=2, upload="best", timeout=120.0)
    saved = [h.CheckpointHook(interval=1), h.BestCheckpointHook("val_acc", rule="greater")]
    hooks = [*saved, h.SystemMetricsHook(0.05), tracker]
    callbacks = [h.HookAdapter(hooks, work_dir=work)]
elif kind == "MLFlowLogger":
    uri = f"sqlite:///{work}/mlflow.db"
    logger = MLFlowLogger(tracking_uri=uri, log_model=True, artifact_location=f"file://{work}/art")
elif kind == "WandbLogger":
    often = {"x_stats_sampling_interval": 0.5}  # the run is short, and W&B may wait 15 seconds
    # log_model=True wants a server
    logger = WandbLogger(save_dir=work, offline=True, settings=often)
else:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
    mlflow.pytorch.autolog()
options = {"max_epochs": 3, "log_every_n_steps": 2, "enable_checkpointing": True}
options = {**options, "inference_mode": True}
trainer = make_trainer(work, *callbacks, logger=logger or False, **options)
module = Net(aug={"crop": 32})
trainer.fit(module, make_loader(4), make_loader(2), ckpt_path=ckpt)
trainer.test(module, make_loader(2), verbose=False)
"""
OPEN_RUN = "values in a run that the program has opened"
KINDS = ("MLFlowLogger", "autolog", "MlflowLoggerHook", "WandbLogger", "WandbLoggerHook")


def train(kind: str, work: Path) -> None:
    """Train in a process killed in the second epoch, then resume in a second process."""
    work.mkdir()
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "LOGNAME": "ada"}
    variables |= {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    (work / "train.py").write_text(PROGRAM)
    ends = []
    for _ in range(2):
        files = sorted([*work.glob("last.ckpt"), *work.glob("epoch_*.pth")])
        command = [sys.executable, "-W", "ignore", "train.py", kind, str(work)]
        with (work / "output.txt").open("ab") as out:
            done = subprocess.run(
                [*command, str(files[-1]) if files else ""],
                **{"env": {**environment(), **variables}, "cwd": work, "timeout": 400},
                **{"stdout": out, "stderr": out},
            )
        ends.append(done.returncode)
    assert ends == [-signal.SIGKILL, 0], (work / "output.txt").read_text()[-3000:]


def in_mlflow(work: Path) -> dict[str, bool]:
    """Return the contents of the latest MLflow run, by the rows of the docs table."""
    client = client_of(work / "mlflow.db")
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(experiments, order_by=["attribute.start_time DESC"])
    tags, metrics = runs[0].data.tags, runs[0].data.metrics
    steps = {
        name: [point.step for point in client.get_metric_history(runs[0].info.run_id, name)]
        for name in metrics
    }
    losses = next(steps[name] for name in ("train/loss", "train_loss") if name in steps)
    models = logged_models(client, experiments)
    folders = [Path(model.artifact_location.removeprefix("file://")) for model in models]
    texts = [folder / "requirements.txt" for folder in folders]
    signatures = [signature_in(folder) for folder in folders if (folder / "MLmodel").exists()]
    return {
        "one run after a kill and a resume": len(runs) == 1 and len({*losses}) == len(losses) > 4,
        "metrics of trainer.test": any("test_acc" in name for name in metrics),
        "hyper-parameters of the module": "32" in runs[0].data.params.values(),
        "nested hyper-parameters": "aug/crop" not in runs[0].data.params
        and "aug" in runs[0].data.params,
        "user and source": {"mlflow.user", "mlflow.source.name"} <= tags.keys(),
        "the epoch": "epoch" in metrics,
        "system metrics": any(name.startswith("system/") for name in metrics),
        "images and tables": {"mlflow.loggedImages", "mlflow.loggedArtifacts"} <= tags.keys(),
        "the best checkpoint": bool([*work.glob("art/**/*.ckpt"), *work.glob("mlart*/**/*.pth")]),
        # this package or Lightning, a requirement that MLflow leaves to this package
        "a model with requirements": any(
            "lightning" in path.read_text() for path in texts if path.exists()
        ),
        "inputs in the model's signature": any(each and each.inputs for each in signatures),
        "outputs in the model's signature": any(each and each.outputs for each in signatures),
    }


def signature_in(folder: Path) -> Any:
    """Return the signature of a model, or None."""
    from mlflow.models import Model

    return Model.load(str(folder / "MLmodel")).signature


def in_wandb(work: Path) -> dict[str, bool]:
    """Return the contents of the W&B run, summed over its offline files."""
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"))
    last = [file for file in files if file.name == files[-1].name]
    for _ in range(60):  # on a busy machine W&B's service ends after the process
        if any(record["type"] == "exit" for record in inspect_wandb(files[-1])):
            break
        time.sleep(0.5)
    records = [record for file in last for record in inspect_wandb(file)]
    rows = [row for file in last for row in history(inspect_wandb(file)).values()]
    names = set().union(*rows)
    config: dict[str, Any] = {}
    for record in records:
        config |= record.get("config", {}).get("update", {})
    losses = [row for row in rows if {"train_loss", "train/loss"} & row.keys()]
    everything = json.dumps(records)
    return {
        "one run after a kill and a resume": len({file.name for file in files}) == 1
        and len(losses) > 4,
        "metrics of trainer.test": any("test_acc" in name for name in names),
        "hyper-parameters of the module": config.get("lr") == 0.1,
        "nested hyper-parameters": config.get("aug") == {"crop": 32},
        "the epoch": "epoch" in names,
        "system metrics": any(record["type"] == "stats" for record in records)
        or "system/cpu" in names,
        "images and tables": any("sample" in name for name in names) and "worst" in str(names),
        "the best checkpoint": '"best"' in everything,
    }


def column(kind: str, corner: str = "the run in the tracker has") -> dict[str, bool]:
    """Return a column of the table in the docs, without empty cells and step costs.

    tests/project/test_benchmarks.py checks the costs of a step.
    """
    page = (ROOT / "docs/families/writers.md").read_text()
    table = page[page.index(f"| {corner} |") :].partition("\n\n")[0].splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table]
    at = rows[0].index(kind)
    rows = [row for row in rows[2:] if row[at] and "costly" not in row[0]]
    return {row[0]: row[at].startswith("yes") for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_the_page_has_what_is_read_back(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    train(kind, tmp_path / "work")
    found = (in_wandb if "Wandb" in kind else in_mlflow)(tmp_path / "work")
    in_table = column(kind)
    del in_table[OPEN_RUN]
    assert in_table == found


OPENED = """
import sys
import mlflow, wandb
import lightning_hooks as h
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from support.training import TinyModule, make_loader, make_trainer

kind, uri = sys.argv[1], "sqlite:///mlflow.db"
mlflow.set_tracking_uri(uri)
callbacks, logger = [], False
if kind.endswith("Hook"):
    callbacks = [h.HookAdapter([getattr(h, kind)(interval=2)], work_dir="work")]
elif kind == "MLFlowLogger":
    logger = MLFlowLogger(tracking_uri=uri)
elif kind == "WandbLogger":
    logger = WandbLogger(offline=True)
else:
    mlflow.pytorch.autolog(log_models=False)
opened = wandb.init() if "Wandb" in kind else mlflow.start_run(run_name="mine")
with opened:
    trainer = make_trainer(".", *callbacks, logger=logger, max_epochs=1, log_every_n_steps=2)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_the_page_has_who_uses_an_open_run(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    variables |= {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-W", "ignore", "-c", OPENED, kind]
    subprocess.run(
        command, env={**environment(), **variables}, cwd=tmp_path, check=True, timeout=120
    )
    if "Wandb" in kind:
        (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
        names = set().union(*history(inspect_wandb(file)).values())
    else:
        client = client_of(tmp_path / "mlflow.db")
        experiments = [each.experiment_id for each in client.search_experiments()]
        runs = client.search_runs(experiments, "attributes.run_name = 'mine'")
        names = set(runs[0].data.metrics)
    used = bool({"train/loss", "train_loss", "val_loss"} & names)
    assert column(kind)[OPEN_RUN] == used


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TensorBoardLogger", "TensorboardLoggerHook"])
def test_the_table_of_the_page_has_what_the_tab_hparams_shows(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    best = ModelCheckpoint(tmp_path / "kept", monitor="val_loss")
    callbacks: list[Callback] = [best]
    if kind == "TensorboardLoggerHook":
        callbacks.append(TensorboardLoggerHook(str(tmp_path / "tb"), interval=2))
    logger = kind == "TensorBoardLogger" and TensorBoardLogger(tmp_path, "tb", version="")
    options = {"max_epochs": 2, "log_every_n_steps": 2, "enable_checkpointing": True}
    trainer = make_trainer(tmp_path, *callbacks, logger=logger, **options)
    trainer.fit(Tuned(0.2), make_loader(4), make_loader(2))
    _, events = read_tensorboard(tmp_path / "tb")
    params, metrics = in_hparams(events)
    scores = [point.value for point in events.Scalars("hp_metric")]
    assert column(kind, "TensorBoard's tab HPARAMS has") == {
        "hyper-parameters of the module": params["lr"].number_value == 0.2,
        "the monitored metric": any("val_loss" in name for name in metrics),
        "an `hp_metric` that is the best score": scores
        == pytest.approx([float(best.best_model_score)]),
    }
