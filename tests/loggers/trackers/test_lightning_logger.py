"""Log to Lightning's loggers: the Trainer's own, and others."""

from __future__ import annotations

import csv
import importlib
import json
import math
import pickle
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger

from lightning_hooks import (
    CheckpointHook,
    HookAdapter,
    LightningLoggerHook,
    OptimizerHook,
    hooks_from_config,
    log_image,
    log_table,
)
from lightning_hooks.loggers.delivery.spool import count_records
from support import training
from support.logs import trackers
from support.logs.media import GIF, WAV, WORDS, Telling
from support.logs.trackers import (
    REAL_CLIENTS,
    Sent,
    Tuned,
    client_of,
    read_tensorboard,
    read_wandb,
    replay_as_told,
    run_of,
    warnings_in,
)
from support.processes import environment, free_port
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS
of_aim = pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")


CLIP = {"max_norm": 1.0}
hosted = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])


class Memory(Logger):
    """A logger that records all calls and the names of the calling threads."""

    def __init__(self, fails: int = 0) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.params: dict[str, Any] = {}
        self.threads: set[str] = set()
        self.finalized: list[str] = []
        self.fails = fails

    name = "memory"
    version = 0

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.threads.add(threading.current_thread().name)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("not yet")
        self.rows.append((step, dict(metrics)))

    def log_hyperparams(self, params: Any, *args: Any) -> None:
        self.params.update(params)

    def finalize(self, status: str) -> None:
        self.finalized.append(status)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]


def fit(folder: Path, *hooks: Any, host: bool = False, **options: Any) -> Any:
    defaults = {"val": 1, "max_epochs": 2, "num_sanity_val_steps": 0}
    return training.fit(folder, *hooks, host=host, **{**defaults, **options})


@hosted
@pytest.mark.parametrize("by_epoch", [False, True])
def test_the_trainers_logger_gets_what_it_has_not(
    host: bool, by_epoch: bool, tmp_path: Path
) -> None:
    own = CSVLogger(tmp_path, version=0)
    hooks = OptimizerHook(grad_clip=CLIP), LightningLoggerHook(interval=2, by_epoch=by_epoch)
    fit(tmp_path, *hooks, host=host, logger=own, log_every_n_steps=1)
    rows = rows_of(tmp_path / "lightning_logs/version_0/metrics.csv")
    ours = [row for row in rows if "train/grad_norm" in row]
    # at Lightning's steps, starting at 0
    assert [int(row["step"]) for row in ours] == [1, 3, 5, 7]
    assert all("learning_rate" in row for row in ours)
    theirs = [row for row in rows if "train_loss" in row]
    assert [int(row["step"]) for row in theirs] == list(range(8))
    names = {name for row in rows for name in row}
    assert not names & {"train/loss", "train/train_loss", "val/val_loss"}
    assert len([row for row in rows if "val_loss" in row]) == 2


class TwoLoaders(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("kept", 1.0, logger=False)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("acc", 0.5 + dataloader_idx)
        if dataloader_idx == 0:
            self.log("first", 2.0, add_dataloader_idx=False)


@hosted
def test_several_val_loaders_have_lightnings_names(host: bool, tmp_path: Path) -> None:
    memory, sent = Memory(), Sent(interval=2)
    hooks = [OptimizerHook(grad_clip=CLIP), LightningLoggerHook(interval=2), sent]
    callbacks = [HookAdapter([*hooks])] if host else hooks
    trainer = make_trainer(tmp_path, *callbacks, logger=memory, log_every_n_steps=1)
    trainer.fit(TwoLoaders(), make_loader(4), [make_loader(1), make_loader(1)])
    accuracies = {"acc/dataloader_idx_0": 0.5, "acc/dataloader_idx_1": 1.5, "first": 2.0}
    theirs = {name for _, row in memory.rows for name in row}
    assert {*accuracies, "train/grad_norm"} <= theirs
    assert not [name for name in theirs if name.startswith("val/") or "kept" in name]
    ours = {name: value for row in sent.rows.values() for name, value in row.items()}
    assert {n: v for n, v in ours.items() if n.startswith("val/")} == {
        f"val/{name}": value for name, value in accuracies.items()
    }
    assert ours["train/kept"] == 1.0
    found = {name: trainer.callback_metrics[name] for name in accuracies}
    assert found == accuracies
    assert found["acc/dataloader_idx_0"].dtype == torch.float32  # the module's own


@hosted
def test_a_logger_of_its_own_gets_everything_from_a_thread(host: bool, tmp_path: Path) -> None:
    memory, sent = Memory(), Sent(interval=2)
    fit(tmp_path, sent, LightningLoggerHook(memory, interval=2), host=host, module=Tuned)
    rows: dict[Any, dict[str, float]] = {}
    for step, row in memory.rows:
        rows.setdefault(step, {}).update(row)
    assert rows == sent.rows
    assert memory.params["lr"] == 0.1
    assert memory.finalized == ["success"]
    assert memory.threads == {"lightning_hooks lightning"}
    assert not (tmp_path / "spool").exists()


def test_csv_and_tensorboard_in_a_list(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    loggers = CSVLogger(tmp_path, name="csv", version=0), TensorBoardLogger(tmp_path, "tb", 0)
    fit(tmp_path, LightningLoggerHook(list(loggers), interval=2))
    rows = rows_of(tmp_path / "csv/version_0/metrics.csv")
    losses = {int(r["step"]): float(r["train/loss"]) for r in rows if "train/loss" in r}
    assert [*losses] == [2, 4, 6, 8]
    drawn, _ = read_tensorboard(tmp_path / "tb/version_0")
    there = {step: row["train/loss"] for step, row in drawn.items() if "train/loss" in row}
    assert there == pytest.approx(losses)


def test_the_default_interval_is_fifty(tmp_path: Path) -> None:
    memory = Memory()
    fit(tmp_path, LightningLoggerHook(memory, by_epoch=False), batches=51)
    assert [step for step, row in memory.rows if "train/loss" in row] == [50, 100]


def test_an_error_that_passes_doubles_nothing(tmp_path: Path) -> None:
    first, second = Memory(), Memory(fails=1)
    fit(tmp_path, LightningLoggerHook([first, second], interval=2, timeout=30.0))
    assert [step for step, _ in first.rows] == [step for step, _ in second.rows]
    assert [step for step, row in first.rows if "train/loss" in row] == [2, 4, 6, 8]


class Quiet(TinyModule):
    """Logs nothing itself."""

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log nothing."""


class Broken(Memory):
    """Refuses everything."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        raise TypeError("not these")


@pytest.mark.parametrize("of_trainer", [False, True])
def test_a_logger_that_raises_costs_a_warning(
    of_trainer: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = Broken(), Memory()
    options: dict[str, Any] = {"logger": [broken, other]} if of_trainer else {}
    hook = LightningLoggerHook(None if of_trainer else [broken, other], interval=2)
    fit(tmp_path, hook, log_every_n_steps=1000, module=Quiet, **options)
    assert [row for _, row in other.rows if "train/loss" in row]
    (said,) = warnings_in(caplog)
    assert "Broken.log_metrics raised TypeError: not these" in said


class Dies(TinyModule):
    """A module that raises an error in the fourth step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_step == 3:
            raise RuntimeError("no more")
        return super().training_step(batch, batch_idx)


def test_a_failed_run_is_finalized_so(tmp_path: Path) -> None:
    memory = Memory()
    with pytest.raises(RuntimeError, match="no more"):
        fit(tmp_path, LightningLoggerHook(memory, interval=1), module=Dies)
    assert memory.finalized == ["failed"]


def test_what_a_logger_has_not_taken_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ValueError("closed")

    with monkeypatch.context() as patch:
        patch.setattr(CSVLogger, "log_metrics", refuse)
        fit(tmp_path, LightningLoggerHook({"type": "CSVLogger", "version": 0}, interval=2))
    assert "ValueError: closed" in warnings_in(caplog)[0]
    replay_as_told(caplog)
    rows = rows_of(tmp_path / "lightning_logs/version_0/metrics.csv")
    assert [int(row["step"]) for row in rows if "train/loss" in row] == [2, 4, 6, 8]


def test_without_a_logger_there_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path, LightningLoggerHook(interval=1))
    (said,) = warnings_in(caplog)
    assert "the Trainer has no logger" in said
    assert "LightningLoggerHook(logger=...)" in said


@hosted
def test_an_evaluation_goes_on_with_the_loggers_of_the_fit(host: bool, tmp_path: Path) -> None:
    hook = LightningLoggerHook({"type": "CSVLogger", "flush_logs_every_n_steps": 1}, interval=2)
    trainer = fit(tmp_path, hook, host=host)
    trainer.validate(trainer.lightning_module, make_loader(1), verbose=False)
    (file,) = tmp_path.glob("lightning_logs/version_*/metrics.csv")
    assert len([row for row in rows_of(file) if "val/val_loss" in row]) == 3
    fit(tmp_path, hook, host=host)
    assert (tmp_path / "lightning_logs/version_1/metrics.csv").exists()


@hosted
def test_a_resumed_run_logs_each_step_once(host: bool, tmp_path: Path) -> None:
    memory = Memory()
    for epochs, ckpt in ((1, None), (2, tmp_path / "epoch_1.pth")):
        hooks = [LightningLoggerHook(memory, interval=1), CheckpointHook(out_dir=str(tmp_path))]
        callbacks = [HookAdapter(hooks)] if host else hooks
        trainer = make_trainer(
            tmp_path, *callbacks, max_epochs=epochs, enable_checkpointing=not host
        )
        trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=ckpt)
    assert [step for step, row in memory.rows if "train/loss" in row] == list(range(1, 9))


def test_works_from_a_config_and_yaml(tmp_path: Path) -> None:
    text = "{type: LightningLoggerHook, interval: 2, logger: {type: CSVLogger, version: 0}}"
    config = {"custom_hooks": [yaml.safe_load(text)]}
    fit(tmp_path, *hooks_from_config(config).hooks, work_dir=str(tmp_path))
    assert rows_of(tmp_path / "lightning_logs/version_0/metrics.csv")


def test_class_path_is_understood_as_in_a_lightning_cli(tmp_path: Path) -> None:
    path = "lightning.pytorch.loggers.CSVLogger"
    spec = {"class_path": path, "init_args": {"save_dir": str(tmp_path / "a"), "version": 0}}
    fit(tmp_path, LightningLoggerHook(spec, interval=2))
    assert rows_of(tmp_path / "a/lightning_logs/version_0/metrics.csv")


@pytest.mark.parametrize(
    ("logger", "said"),
    [
        ("csv", "must be a Logger"),
        ({"save_dir": "a"}, "the name of its class as 'type'"),
        ({"type": "CVSLogger"}, "did you mean 'CSVLogger'"),
        ({"type": "CSVLogger", "safe_dir": "a"}, "did you mean 'save_dir'"),
    ],
)
def test_a_wrong_logger_is_refused(logger: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        LightningLoggerHook(logger)


def test_pickles_with_its_logger(tmp_path: Path) -> None:
    hook = pickle.loads(pickle.dumps(LightningLoggerHook(Memory(), interval=2)))
    fit(tmp_path, hook)
    assert hook.loggers[0].rows


@pytest.mark.filterwarnings("ignore")
def test_swanlab_by_its_lightning_logger(tmp_path: Path) -> None:
    module = pytest.importorskip("swanlab.integration.pytorch_lightning")
    logger = module.SwanLabLogger(project="p", log_dir=str(tmp_path / "swan"), mode="offline")
    hook = LightningLoggerHook(logger, interval=2, strict=True, timeout=60.0)
    fit(tmp_path, hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    import swanlab

    swanlab.finish()
    (file,) = tmp_path.rglob("*.swanlab")
    assert b"train/loss" in file.read_bytes()


# -- ``LightningLoggerHook`` with images, tables and slow starts, by Lightning's own loggers.

ODD = [math.nan, math.inf, -math.inf, 1.5]
IMAGE = torch.linspace(0, 1, 60).reshape(3, 4, 5)
WORST = {"id": [1, 2], "loss": [0.5, 0.25]}


class Sampling(TinyModule):
    """Logs an image and a table in each validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))
        log_image(self, "sample", IMAGE)
        log_table(self, "worst", WORST)


def fit_sampling(work: Path, hook: Any, logger: Any = False) -> None:
    trackers.fit(work, hook, module=Sampling, epochs=1, val=1, logger=logger)


@pytest.mark.parametrize("shares", [False, True])
def test_tensorboard_has_images_and_tables(tmp_path: Path, shares: bool) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path)
    hook = LightningLoggerHook(None if shares else logger, interval=2, strict=True)
    fit_sampling(tmp_path / "work", hook, logger if shares else False)
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
    fit_sampling(
        tmp_path / "work", LightningLoggerHook(logger, interval=2, strict=True, timeout=60)
    )
    client = client_of(tmp_path / "mlflow.db")
    run = run_of(client).info
    assert [*client.list_artifacts(run.run_id, "images")]
    table = client.load_table(run.experiment_id, "tables/val/worst/5.json", [run.run_id])
    assert table["loss"].tolist() == [0.5, 0.25]


@pytest.mark.slow
def test_wandb_has_images_and_tables(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    fit_sampling(
        tmp_path / "work", LightningLoggerHook(logger, interval=2, strict=True, timeout=60)
    )
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
    fit_sampling(tmp_path / "work", hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    hook.client_run[0].experiment.end()
    (archive,) = (tmp_path / "comet").glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        text = " ".join(files.namelist()) + files.read("messages.json").decode()
    assert all(word in text for word in ("train/loss", "val/sample", "val_worst_5.csv"))


COMET = """
from lightning_hooks import LightningLoggerHook
from support.training import TinyModule, make_loader, make_trainer

comet = {"type": "CometLogger", "project": "digits", "offline_directory": "comet"}
hook = LightningLoggerHook(comet, interval=2, timeout=60)
make_trainer(".", hook, max_epochs=1).fit(TinyModule(), make_loader(4))
"""


@pytest.mark.slow
def test_comets_run_ends_with_the_process(tmp_path: Path) -> None:
    pytest.importorskip("comet_ml")
    run = [sys.executable, "-W", "ignore", "-c", COMET]
    variables = environment(COMET_START_ONLINE="0")
    subprocess.run(run, env=variables, cwd=tmp_path, check=True, timeout=240)
    (archive,) = (tmp_path / "comet").glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        assert "train/loss" in files.read("messages.json").decode()


def test_swanlab_offline_has_images_and_tables(tmp_path: Path) -> None:
    swanlab = pytest.importorskip("swanlab")
    name = "swanlab.integration.pytorch_lightning.SwanLabLogger"
    folder = {"log_dir": str(tmp_path / "swan"), "mode": "offline"}
    hook = LightningLoggerHook(
        {"type": name, "project": "digits", **folder}, interval=2, strict=True, timeout=60
    )
    fit_sampling(tmp_path / "work", hook)
    assert hook.status()["sent"] == hook.status()["logged"]
    swanlab.finish()
    (run,) = (tmp_path / "swan").glob("run-*")
    assert [*run.glob("media/image/005-*.png")]
    stored = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert all(word in stored for word in (b"train/loss", b"val/sample", b"| id | loss |"))


@of_aim
def test_aim_has_numbers_images_and_tables(tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    logger = {"type": "aim.pytorch_lightning.AimLogger", "repo": str(tmp_path / "repo")}
    hook = LightningLoggerHook(logger, interval=2, strict=True, timeout=60)
    fit_sampling(tmp_path / "work", hook)
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


class Strange(TinyModule):
    """Logs NaN, infinities and a name with signs."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("ä b/:%", float(["nan", "inf", "-inf", "1.5"][batch_idx]))
        return super().training_step(batch, batch_idx)


def strange_fits(work: Path, first: Any, resumed: Any) -> None:
    """Train an epoch, then resume for a second epoch with another logger."""
    for epochs, logger, ckpt in ((1, first, None), (2, resumed, work / "epoch_1.pth")):
        hook = LightningLoggerHook(logger(), interval=1, strict=True, timeout=60)
        saving = {"enable_checkpointing": True, "max_epochs": epochs}
        trainer = make_trainer(work, hook, CheckpointHook(out_dir=str(work)), **saving)
        trainer.fit(Strange(), make_loader(4), make_loader(1), ckpt_path=ckpt)


@of_aim
def test_aim_keeps_strange_values_in_a_run_that_goes_on(tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    repo, path = str(tmp_path / "repo"), "aim.pytorch_lightning.AimLogger"
    of_hash = {"type": path, "repo": repo}

    def again() -> dict[str, Any]:
        (key,) = aim.Repo(repo).list_all_runs()
        return {**of_hash, "run_hash": key}

    strange_fits(tmp_path, lambda: of_hash, again)
    run = aim.Run(again()["run_hash"], repo=repo, system_tracking_interval=None)
    context = importlib.import_module("aim.storage.context").Context({})
    points = run.get_metric("train/ä b/:%", context).dataframe()
    assert points["step"].tolist() == [*range(1, 9)]
    assert points["value"].tolist() == pytest.approx(ODD * 2, nan_ok=True)
    run.close()


@pytest.mark.filterwarnings("ignore")
def test_swanlab_keeps_strange_values_in_a_run_that_goes_on(tmp_path: Path) -> None:
    swanlab = pytest.importorskip("swanlab")
    swan = {
        "type": "swanlab.integration.pytorch_lightning.SwanLabLogger",
        "project": "digits",
        "log_dir": str(tmp_path / "swan"),
        "mode": "offline",
        "id": "seven",
        "resume": "allow",
    }

    def again() -> dict[str, Any]:
        swanlab.finish()  # as the end of a process does
        return swan

    strange_fits(tmp_path, lambda: swan, again)
    swanlab.finish()
    files = sorted((tmp_path / "swan").glob("run-*-seven/*.swanlab"))
    for file in files:  # one file per process, with the same id
        stored = file.read_bytes()
        assert all(struct.pack("<d", value) in stored for value in ODD)
        assert stored.count("train/ä b/:%".encode()) == 5  # the name, and four steps
    assert len(files) == 2


# -- runs left open by Lightning's loggers or cut short by a kill --

SWANLAB = "swanlab.integration.pytorch_lightning.SwanLabLogger"
COMETS_FOLDER = {"project": "digits", "offline_directory": "comet"}
OFFLINE: dict[str, tuple[dict[str, Any], str]] = {  # with the files of a run
    "comet_ml": ({"type": "CometLogger", **COMETS_FOLDER}, "comet/*.zip"),
    "swanlab": (
        {"type": SWANLAB, "project": "digits", "log_dir": "swan", "mode": "offline"},
        "swan/*/*.swanlab",
    ),
    "wandb": (
        {"type": "WandbLogger", "offline": True, "save_dir": "."},
        "wandb/offline-run-*/*.wandb",
    ),
}
TWO_FITS = """
import json, sys
from lightning_hooks import LightningLoggerHook
from support.training import TinyModule, make_loader, make_trainer

for _ in range(2):
    hook = LightningLoggerHook(json.loads(sys.argv[1]), interval=2, strict=True, timeout=60)
    trainer = make_trainer(".", hook, max_epochs=1)
    trainer.fit(TinyModule(), make_loader(4))
    trainer.validate(trainer.lightning_module, make_loader(1), verbose=False)
"""
A_FIT = """
import json, logging, sys
from lightning_hooks import LightningLoggerHook
from support.training import TinyModule, make_loader, make_trainer

logging.basicConfig()
hook = LightningLoggerHook(json.loads(sys.argv[1]), interval=1, timeout=2)
make_trainer(".", hook, max_epochs=1).fit(TinyModule(), make_loader(4))
"""
A_KILL = """
import json, os, signal, sys, time
from lightning_hooks import LightningLoggerHook
from support.training import TinyModule, make_loader, make_trainer

class Killed(TinyModule):
    def on_train_epoch_end(self):
        hook._session.sender.settle(60)
        time.sleep(1)  # the sender notes what is delivered
        os.kill(os.getpid(), signal.SIGKILL)

hook = LightningLoggerHook(json.loads(sys.argv[1]), interval=1)
make_trainer(".", hook).fit(Killed(), make_loader(4))
"""


def run_with(client: str, arguments: list[str], folder: Path, **variables: str) -> str:
    """Run a program of the client, offline by default; return the output."""
    pytest.importorskip(client)
    command = [sys.executable, "-W", "ignore", *arguments]
    given = environment(**{"COMET_START_ONLINE": "0", **variables})
    done = subprocess.run(command, env=given, cwd=folder, timeout=240, capture_output=True)
    return (done.stdout + done.stderr).decode()


@pytest.mark.slow
@pytest.mark.parametrize("client", OFFLINE)
def test_each_fit_and_its_evaluation_have_a_run(client: str, tmp_path: Path) -> None:
    logger, files = OFFLINE[client]
    said = run_with(client, ["-c", TWO_FITS, json.dumps(logger)], tmp_path)
    runs = [path.read_bytes() for path in tmp_path.glob(files)]
    assert len(runs) == 2, said
    if client == "comet_ml":
        runs = [*map(messages_in, tmp_path.glob(files))]
    assert all(b"train/loss" in run and b"val/val_loss" in run for run in runs)


def messages_in(archive: Path) -> bytes:
    """The messages of an archive of Comet's."""
    with zipfile.ZipFile(archive) as files:
        return files.read("messages.json")


@pytest.mark.slow
def test_comet_without_a_server_has_taken_nothing(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}/clientlib/"
    variables = {"COMET_URL_OVERRIDE": server, "COMET_API_KEY": "x" * 25}
    logger, _ = OFFLINE["comet_ml"]
    program = ["-c", A_FIT, json.dumps(logger)]
    said = run_with("comet_ml", program, tmp_path, COMET_START_ONLINE="1", **variables)
    assert (
        "lightning has taken 0 of 4 records (ConnectionError: Comet's run has not reached" in said
    )


@pytest.mark.slow
@pytest.mark.parametrize("client", OFFLINE)
def test_what_a_kill_has_cost_an_offline_run_is_sent(client: str, tmp_path: Path) -> None:
    logger, files = OFFLINE[client]
    said = run_with(client, ["-c", A_KILL, json.dumps(logger)], tmp_path)
    (spool,) = tmp_path.glob("spool/*.jsonl")
    assert count_records(str(spool), rest=True) == 4, said
    command = ["replay", str(spool), "--to", "lightning", "--logger", json.dumps(logger)]
    said = run_with(client, ["-m", "lightning_hooks", *command], tmp_path)
    assert not spool.exists(), said
    # the killed run has a file too
    last = max(tmp_path.glob(files), key=lambda path: path.stat().st_mtime)
    stored = messages_in(last) if client == "comet_ml" else last.read_bytes()
    assert stored.count(b"train/loss") >= 4


class Slow(Logger):
    """A logger that starts slower than the hook's timeout."""

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
    fit_sampling(tmp_path / "work", LightningLoggerHook(slow, interval=2, timeout=0.3))
    assert slow.steps == [2, 4, 5]
    said = [text for text in warnings_in(caplog) if "images" not in text and "tables" not in text]
    assert said == []


def test_images_that_no_logger_holds_are_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit_sampling(tmp_path / "work", LightningLoggerHook(CSVLogger(tmp_path), interval=2))
    text = "no tracker of this run holds images: they are files in"
    assert any(text in warning for warning in warnings_in(caplog))
    assert [*(tmp_path / "work" / "media").rglob("*.png")]


@pytest.mark.parametrize("of_trainer", [False, True])
def test_sounds_and_videos_are_files_beside_the_loggers(
    tmp_path: Path, of_trainer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorboard")
    work, logger = tmp_path / "work", TensorBoardLogger(tmp_path)
    hook = LightningLoggerHook(None if of_trainer else logger, interval=2, strict=True)
    trackers.fit(
        work, hook, module=Telling, epochs=1, val=1, logger=logger if of_trainer else False
    )
    _, events = read_tensorboard(Path(logger.log_dir))
    assert events.Tags()["images"] == ["val/curve"]
    (step,) = {3, 5} & {int(path.stem) for path in work.glob("media/val/speech/*.wav")}
    files = work / "media/val"
    assert (files / f"answer/{step}.txt").read_text() == WORDS
    assert (files / f"speech/{step}.wav").read_bytes() == WAV
    assert (files / f"rollout/{step}.gif").read_bytes() == GIF
    assert warnings_in(caplog) == [
        f"no tracker of this run holds {kind}: they are files in {work}/media"
        for kind in ("texts", "audios", "videos")
    ]
