"""TensorBoard, DVCLive, Visdom and ClearML with their real clients; all eight at once."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.replay import read, replay
from lightning_hooks.loggers.trackers.dvclive import DvcliveWriter
from support.logs.trackers import (
    Sent,
    client_of,
    fit,
    history,
    points,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_text_log,
    read_visdom_server,
    read_wandb,
    run_of,
    series,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients', of each other and of Python
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Tuned(TinyModule):
    """Saves its hyper-parameters."""

    def __init__(self, lr: float = 0.1, data: Any = None) -> None:
        super().__init__(lr)
        self.save_hyperparameters()


class Pictures(Hook):
    """Reports an image and a text."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        image = torch.linspace(0, 1, 48).reshape(3, 4, 4)
        runner.log_buffer.output.update(sample=image, best="cat")
        runner.log_buffer.ready = True


def close(one: dict[int, dict[str, float]], two: dict[int, dict[str, float]]) -> bool:
    """The same numbers, as float32 holds them."""
    assert one.keys() == two.keys()
    return all(one[step] == pytest.approx(two[step], rel=1e-6) for step in one)


def quiet(caplog: pytest.LogCaptureFixture) -> bool:
    found = [r for r in caplog.records if r.levelname == "WARNING" and "ooks" in r.name]
    return not [r.getMessage() for r in found if "Neptune's hosted service" not in r.getMessage()]


# -- TensorBoard -------------------------------------------------------------------------------


def test_tensorboard_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    module = Tuned(0.2, {"size": 8})
    fit(work, sent, TensorboardLoggerHook(interval=2), Pictures(), module=module)
    rows, events = read_tensorboard(work / "tf_logs")
    sent.rows = {
        s: {k: v for k, v in row.items() if sent.is_scalar(v)} for s, row in sent.rows.items()
    }
    assert close(rows, sent.rows)
    image = events.Images("val/sample")[0]
    assert (image.width, image.height, image.step) == (4, 4, 5)
    assert "val/best/text_summary" in events.Tags()["tensors"]
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    assert found["lr"].number_value == 0.2
    assert found["data/size"].number_value == 8
    assert quiet(caplog)


def test_departure_tensorboards_log_dir_is_that_of_each_run(work: Path, tmp_path: Path) -> None:
    hook = TensorboardLoggerHook(interval=2)
    for folder in ("a", "b"):
        fit(tmp_path / folder, hook, epochs=1)
        assert len(list((tmp_path / folder / "tf_logs").iterdir())) == 1
    assert hook.log_dir is None
    elsewhere = TensorboardLoggerHook(str(tmp_path / "else"), interval=2)
    fit(work, elsewhere, epochs=1)
    assert read_tensorboard(tmp_path / "else")[0].keys() == {2, 4, 5}


def test_tensorboard_shares_the_run_of_lightnings_logger(work: Path, tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="", version="tb")
    adapter = HookAdapter([TensorboardLoggerHook(interval=2, run=logger)], work_dir=str(work))
    trainer = make_trainer(tmp_path, adapter, logger=logger, log_every_n_steps=1)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    rows, _ = read_tensorboard(tmp_path / "tb")
    assert {"train_loss", "train/loss", "val/val_loss"} <= set().union(*rows.values())
    assert not (work / "tf_logs").exists()


def test_a_folder_that_is_removed_costs_a_warning(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (work / "tf_logs").write_text("no folder")
    module = fit(work, TensorboardLoggerHook(interval=1, timeout=0.5), epochs=1)
    assert len(module.losses) == 4
    assert not quiet(caplog)
    (path,) = work.glob("spool/*.jsonl")
    (work / "tf_logs").unlink()
    command = [sys.executable, "-m", "lightning_hooks.cli", "replay", str(path)]
    assert subprocess.check_output(command, text=True) == "5 records sent\n"
    assert read_tensorboard(work / "tf_logs")[0].keys() == {1, 2, 3, 4, 5}
    assert not path.exists()


# -- DVCLive -----------------------------------------------------------------------------------


def test_dvclive_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("dvclive")
    sent = Sent(interval=2, by_epoch=False)
    module = Tuned(0.2, {"size": 8})
    fit(work, sent, DvcliveLoggerHook(interval=2, by_epoch=False), module=module)
    assert read_dvclive(work / "dvclive") == sent.rows
    summary = json.loads((work / "dvclive" / "metrics.json").read_text())
    assert summary["train"]["loss"] == sent.rows[8]["train/loss"]
    assert (work / "dvclive" / "params.yaml").read_text() == "lr: 0.2\ndata/size: 8\n"
    assert quiet(caplog)
    assert os.listdir() == []


def test_departure_dvclive_logs_the_average_of_each_epoch(work: Path) -> None:
    pytest.importorskip("dvclive")
    module = fit(work, DvcliveLoggerHook(model_file=str(work / "model.pth")), Sent(interval=2))
    rows = read_dvclive(work / "dvclive")
    assert rows.keys() == {1, 2}
    assert rows[1]["train/loss"] == pytest.approx(np.mean(module.losses[:4]))
    assert rows[2]["train/loss"] == pytest.approx(np.mean(module.losses[4:]))
    assert "val/val_loss" in rows[2]
    assert torch.load(work / "model.pth")["meta"]["epoch"] == 2


def test_dvclive_uses_a_live_that_is_given(work: Path, tmp_path: Path) -> None:
    live = pytest.importorskip("dvclive").Live(
        str(tmp_path / "mine"), save_dvc_exp=False, report=None, dvcyaml=None
    )
    fit(work, DvcliveLoggerHook(dvclive=live), epochs=1)
    live.log_metric("mine", 1.0)
    assert read_dvclive(tmp_path / "mine")[1].keys() >= {"train/loss", "mine"}
    with pytest.raises(TypeError, match="dvclive and run are the same thing"):
        DvcliveLoggerHook(dvclive=live, run=live)


class Crossing(Hook):
    """Reports numbers of which one is named as the group of the other, in both orders."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        names = ("val", "val/acc", "map/small", "map")
        runner.log_buffer.output.update({f"val/{name}": float(len(name)) for name in names})
        runner.log_buffer.ready = True


@pytest.mark.parametrize(
    ("hook", "read_rows"),
    [
        (DvcliveLoggerHook, lambda work: read_dvclive(work / "dvclive")),
        (NeptuneLoggerHook, lambda work: series(read_neptune(work))),
    ],
)
def test_departure_a_number_and_a_group_of_one_name_are_both_kept(
    hook: Any, read_rows: Any, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(hook.package)
    tracker = hook(interval=2, by_epoch=False, all_groups=True)
    fit(work, tracker, Crossing(), epochs=1)
    assert tracker.status()["sent"] == tracker.status()["logged"]
    rows = read_rows(work)
    assert rows[2]["learning_rate"] == rows[2]["learning_rate_/0"] == 0.1
    found = {k: v for row in rows.values() for k, v in row.items() if k[:5] in ("val/v", "val/m")}
    assert found.pop("val/val_loss") > 0
    assert found == {"val/val": 3.0, "val/val_/acc": 7.0, "val/map/small": 9.0, "val/map_": 3.0}
    messages = [r.getMessage() for r in caplog.records]
    assert any("share a name: learning_rate/0 is learning_rate_/0" in text for text in messages)
    assert len([r for r in caplog.records if r.levelname == "WARNING" and "ooks" in r.name]) == 1


def test_a_dvclive_run_that_goes_on_finds_the_names_of_the_one_before(work: Path) -> None:
    live = pytest.importorskip("dvclive").Live
    options = {"dir": str(work / "d"), "save_dvc_exp": False, "report": None, "dvcyaml": None}
    for step, names in ((1, ("a", "a/b")), (2, ("a/b", "a"))):
        writer = DvcliveWriter(live(**options, resume=step > 1))
        writer.write([Record(step, 0.0, step, {name: float(len(name)) for name in names})])
        writer.close()
    assert read_dvclive(work / "d") == {step: {"a": 1.0, "a_/b": 3.0} for step in (1, 2)}


# -- ClearML -----------------------------------------------------------------------------------


def test_clearml_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("clearml")
    sent = Sent(interval=2)
    hook = ClearMLLoggerHook({"task_name": "digits"}, interval=2)
    fit(work, sent, hook, module=Tuned(0.2, {"size": 8}))
    assert read_clearml(work / "clearml") == sent.rows
    (path,) = (work / "clearml").glob("offline/*/task.json")
    task = json.loads(path.read_text())
    assert task["name"] == "digits"
    assert task["hyperparams"]["General"]["lr"]["value"] == "0.2"
    assert quiet(caplog)
    assert os.listdir() == []


# -- Visdom ------------------------------------------------------------------------------------


@pytest.fixture
def visdom_server(tmp_path: Path) -> Iterator[int]:
    """A Visdom server; started by its command it would look for scripts on the internet."""
    pytest.importorskip("visdom")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "from visdom.server.run_server import start_server; start_server("
        f"port={port}, hostname='127.0.0.1', env_path={str(tmp_path)!r}, bind_local=True, "
        "base_url='')"
    )
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()


def test_visdom_draws_on_a_server(
    work: Path, tmp_path: Path, visdom_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent = Sent(interval=2)
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    hook = VisdomLoggerHook(server, interval=2)
    fit(work, hook, Pictures(), sent, module=Tuned(0.2))
    windows = json.loads((tmp_path / "digits.json").read_text())["jsons"]
    assert read_visdom_server(tmp_path / "digits.json") == {
        step: {k: v for k, v in row.items() if sent.is_scalar(v)} for step, row in sent.rows.items()
    }
    assert windows["val/sample"]["type"] == "image"
    assert "<td>lr<td>0.2" in windows["parameters"]["content"]
    assert quiet(caplog)


def test_a_dead_visdom_server_costs_one_warning(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("visdom")
    hook = VisdomLoggerHook({"server": "http://127.0.0.1", "port": 9}, interval=1, timeout=0.5)
    fit(work, hook, epochs=1)
    assert not quiet(caplog)
    (path,) = work.glob("spool/*.jsonl")
    assert len(read(str(path))[1]) == 5


# -- all of them -------------------------------------------------------------------------------


def test_all_eight_at_once_have_the_same_numbers(
    work: Path, tmp_path: Path, visdom_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    for package in ("clearml", "dvclive"):
        pytest.importorskip(package)
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    how: dict[str, Any] = {"interval": 1, "by_epoch": False}
    sent = Sent(**how)
    fit(
        work,
        ClearMLLoggerHook(**how),
        DvcliveLoggerHook(**how),
        MlflowLoggerHook(**how, log_model=False),
        NeptuneLoggerHook(**how),
        sent,
        TensorboardLoggerHook(**how),
        TextLoggerHook(**how),
        VisdomLoggerHook(server, **how),
        WandbLoggerHook(**how),
    )
    assert len(sent.rows) == 8
    assert {"train/loss", "val/val_loss", "learning_rate", "momentum"} <= sent.rows[4].keys()
    assert read_clearml(work / "clearml") == sent.rows
    assert read_dvclive(work / "dvclive") == sent.rows
    assert points(work / "mlflow.db") == sent.rows
    assert series(read_neptune(work)) == sent.rows
    assert close(read_tensorboard(work / "tf_logs")[0], sent.rows)
    assert read_visdom_server(tmp_path / "digits.json") == sent.rows
    assert history(read_wandb(work)) == sent.rows
    written = read_text_log(work)  # five decimals, as mmcv
    assert written.keys() == sent.rows.keys()
    for step, row in sent.rows.items():
        assert written[step] == pytest.approx(
            {k: v for k, v in row.items() if k != "momentum"}, abs=5.1e-6
        )
    assert quiet(caplog)
    assert not (work / "spool").exists()


def test_mlflow_and_wandb_share_the_runs_of_lightnings_loggers(work: Path, tmp_path: Path) -> None:
    mlflow = MLFlowLogger(tracking_uri=f"sqlite:///{work}/mlflow.db")
    wandb = WandbLogger(save_dir=work, offline=True, settings={"console": "off"})
    hooks = [MlflowLoggerHook(run=mlflow, interval=2, log_model=False)]
    hooks.append(WandbLoggerHook(run=wandb, interval=2, log_artifact=False))
    adapter = HookAdapter(hooks, work_dir=str(work))
    trainer = make_trainer(tmp_path, adapter, logger=[mlflow, wandb], log_every_n_steps=1)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    wandb.experiment.finish()
    run = run_of(client_of(work / "mlflow.db"))
    assert {"train_loss", "train/loss", "val/val_loss"} <= run.data.metrics.keys()
    rows = history(read_wandb(work)).values()
    assert {"train_loss", "train/loss", "global_step"} <= set().union(*rows)


def test_a_neptune_run_goes_to_mlflow_wandb_and_tensorboard(work: Path, tmp_path: Path) -> None:
    sent = Sent(interval=2)
    fit(work, sent, NeptuneLoggerHook(interval=2), module=Tuned(0.2))
    (run,) = work.glob(".neptune/offline/run__*")
    uri = f"sqlite:///{work}/mlflow.db"
    assert replay(str(run), "mlflow", uri=uri, experiment="moved") == 1 + len(sent.rows)
    assert points(work / "mlflow.db") == sent.rows
    assert run_of(client_of(work / "mlflow.db")).data.params == {"lr": "0.2", "data": "None"}
    replay(str(run), "tensorboard", log_dir=str(tmp_path / "tb"))
    assert close(read_tensorboard(tmp_path / "tb")[0], sent.rows)
    replay(str(run), "wandb", init={"mode": "offline", "dir": str(work)})
    assert history(read_wandb(work)) == sent.rows


def test_a_spool_goes_elsewhere_too(work: Path, tmp_path: Path) -> None:
    dead = {"uri": "http://127.0.0.1:9"}
    hook = MlflowLoggerHook(interval=2, log_model=False, timeout=0.2)
    hook.target = lambda runner: dead  # type: ignore[method-assign]
    fit(work, hook, epochs=1)
    (path,) = work.glob("spool/*.jsonl")
    replay(str(path), "tensorboard", log_dir=str(tmp_path / "tb"))
    assert read_tensorboard(tmp_path / "tb")[0].keys() == {2, 4, 5}
    with pytest.raises(ValueError, match=r"to must be one of clearml, .*, got 'comet'"):
        replay(str(path), "comet")


@pytest.mark.parametrize(
    "hook", [ClearMLLoggerHook, DvcliveLoggerHook, TensorboardLoggerHook, VisdomLoggerHook]
)
def test_a_missing_package_fails_at_construction_and_names_the_extra(
    hook: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    match = rf'{hook.__name__} needs .*: pip install "lightning_hooks\[{hook.package}\]"'
    with pytest.raises(ImportError, match=match):
        hook()


@pytest.mark.parametrize(
    "hook", [ClearMLLoggerHook, DvcliveLoggerHook, TensorboardLoggerHook, VisdomLoggerHook]
)
def test_a_tracker_logs_two_fits_and_pickles(
    hook: type[Any], work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(hook.package)
    one = pickle.loads(pickle.dumps(hook(interval=2)))
    fit(work, one, epochs=1)
    fit(work, one, epochs=1)
    assert quiet(caplog)
    assert pickle.loads(pickle.dumps(one)).interval == 2
