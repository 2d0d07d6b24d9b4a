"""A foreign spool or checkpoint never chooses the destination of data."""

from __future__ import annotations

import json
import shlex
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import EMAHook, LightningLoggerHook, MlflowLoggerHook, TextLoggerHook
from lightning_hooks.cli import main
from lightning_hooks.loggers.delivery.record import seal
from lightning_hooks.loggers.delivery.session import replay_command
from lightning_hooks.loggers.delivery.spool import Spool, read_head
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.replay import open_writer, replay
from lightning_hooks.loggers.trackers.table import (
    OPTIONS,
    TRACKERS,
    arguments_of,
    options_of,
    writer_class,
)
from lightning_hooks.utils.secrets import without_secrets
from support import training
from support.contract.loggers import CONNECTED
from support.logs.kept import KeepHook


def spool_of(work: Path, writer: str, **head: Any) -> str:
    """Create a spool with one record in a work dir; return its path."""
    spool = Spool(str(work / "spool/x.jsonl"), {"writer": writer, "key": "1f", **head})
    image = np.zeros((3, 4, 4), np.uint8)
    spool.append(1.0, 1, scalars={"loss": 1.0}, images={"sample": image}, params={"lr": 0.1})
    spool.close(keep=True)
    return spool.path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


FILES = {
    "clearml": "offline/*/metrics.jsonl",
    "dvclive": "plots/metrics/loss.tsv",
    "mlflow": "mlartifacts/**/sample*.png",
    "neptune": "offline/run__*/data-1.log",
    "tensorboard": "events*",
    "visdom": "1f.log",
    "wandb": "wandb/offline-run-*/*.wandb",
}
SLOW = "clearml", "mlflow", "neptune", "wandb"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in FILES]
)
def test_a_spool_is_sent_where_the_command_says(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pytest.importorskip(name)
    evil = {"log_dir": "/evil", "uri": "http://evil", "init": {"dir": "/evil", "server": "evil"}}
    path = spool_of(tmp_path / "work", name, arguments=evil, resume={"run_id": "evil"})
    place: dict[str, Any] = {"dir": tmp_path / "to", "run_id": "1f", "mode": "offline"}
    place |= {"experiment": "digits", "name": "it's first"}
    place["tracking_uri"] = f"sqlite:///{tmp_path}/to/mlflow.db"
    options = {key: value for key, value in place.items() if key in TRACKERS[name].options}
    (tmp_path / "to").mkdir()
    with pytest.raises(SystemExit, match="0"):
        main(shlex.split(replay_command(path, name, options))[1:])
    assert capsys.readouterr().out.endswith("1 records sent\n")
    assert len([*(tmp_path / "to").glob(FILES[name])]) == 1
    # MLflow 2 leaves an empty folder
    empty = {here / "mlruns"} if name == "mlflow" and version("mlflow") < "3" else set()
    assert {*here.rglob("*")} <= empty
    assert not Path(path).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {"uri": " {server}", "tracking_uri": " {server}"},  # a space passed as no URL once
        {"artifacts": "{server}", "experiment": "digits", "artifact_location": "{server}"},
        {
            "type": "MLFlowLogger",
            "tracking_uri": "{server}",
            "kwargs": {"tracking_uri": "{server}"},
        },
        {"experiment": "$DATABASE_URL", "label": "${DATABASE_URL}", "tags": {"a": "***"}},
    ],
    ids=["space", "artifacts", "logger", "variable"],
)
def test_a_strangers_spool_meets_no_server_and_gets_no_secret(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    pytest.importorskip("mlflow")
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:s3cret@host/db")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        evil = json.loads(json.dumps(arguments).replace("{server}", url))
        path = spool_of(tmp_path / "work", "mlflow", arguments=evil, **evil)
        own = f"sqlite:///{tmp_path}/mlflow.db"
        replay(path, "mlflow", tracking_uri=own, experiment="mine")
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
    client = mlflow.MlflowClient(own)
    assert {one.name for one in client.search_experiments()} == {"Default", "mine"}
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"s3cret" in content for content in kept)


def test_a_spool_names_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cret@127.0.0.1:9")
    hook = MlflowLoggerHook("digits", interval=1, timeout=0.0, log_model=False)
    training.fit(tmp_path, hook, work_dir=str(tmp_path / "work"), val=2)
    (path,) = tmp_path.rglob("*.jsonl")
    assert read_head(str(path))[0].keys() == {"writer", "key", "format", "run"}
    text = path.read_text()
    assert not any(word in text for word in ("127.0.0.1", "s3cret", "digits", str(tmp_path)))


@pytest.mark.parametrize("name", TRACKERS)
def test_the_options_of_a_run_lead_to_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = writer_class(name)
    left = CONNECTED.get(name) or arguments_of(cls, {o: f"/{o}" for o in TRACKERS[name].options})
    options = {k: v for k, v in options_of(cls, None, left).items() if v is not None}
    assert options
    assert {*options} <= {*TRACKERS[name].options} <= {*OPTIONS}
    monkeypatch.setattr(cls, "connect", dict)
    monkeypatch.setattr("lightning_hooks.loggers.replay.require", lambda *args: None)
    found: Any = open_writer(name, **{k: str(v) for k, v in options.items()})
    again = {k: v for k, v in options_of(cls, None, found).items() if v is not None}
    assert again == options


def test_an_option_of_another_tracker_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spool_of(tmp_path, "tensorboard")
    with pytest.raises(SystemExit, match="2"):
        main(["replay", path, "--to", "tensorboard", "--tracking-uri", "http://host"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ValueError: tensorboard has no option 'tracking_uri'; it has dir")
    with pytest.raises(ValueError, match="lightning needs the option logger, such as"):
        replay(path, "lightning")
    with pytest.raises(ValueError, match=r"such as .*CSVLogger.*, got 'CSVLogger'"):
        replay(path, "lightning", logger="CSVLogger")


def test_no_secret_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow, secret = writer_class("mlflow"), "http://me:s3cret@host"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    for uri in (secret, "http://host"):
        assert options_of(mlflow, None, {"uri": uri})["tracking_uri"] is None  # from the variable
    assert options_of(mlflow, None, {"uri": "http://other"})["tracking_uri"] == "http://other"
    store = "postgresql:///db?user=me&password=s3cret"
    assert without_secrets(store) == "postgresql:///db?user=me&password=***"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert options_of(mlflow, None, {"uri": store})["tracking_uri"] is None
    loggers = [{"type": "CometLogger", "api_key": "s3cret", "name": "first"}]
    options = options_of(writer_class("lightning"), None, {"loggers": loggers})
    assert json.loads(options["logger"]) == [{"type": "CometLogger", "name": "first"}]


WRONG: dict[str, Any] = {
    "run": lambda: MlflowLoggerHook(run="http://me:s3cret@host"),
    "logger": lambda: LightningLoggerHook({"api_key": "s3cret"}),
    "no logger": lambda: LightningLoggerHook([("CometLogger", "http://me:s3cret@host")]),
    "arguments": lambda: TextLoggerHook(file_client_args={"backend": "s3", "secret": "s3cret"}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_no_secret_is_in_an_error(wrong: str) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises((TypeError, ValueError), match=r"\*\*\*") as raised:
        WRONG[wrong]()
    assert "s3cret" not in str(raised.value)


def test_no_secret_is_in_a_message_about_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    hook = TextLoggerHook(interval=1, out_dir="memory://me:s3cret@logs")
    training.fit(tmp_path, hook, work_dir=str(tmp_path / "work"), val=2)
    said = [text for text in caplog.messages if "was copied to" in text]
    assert said
    assert not any("s3cret" in text for text in said)


def test_an_id_in_an_acknowledgement_that_is_none_is_not_printed(tmp_path: Path) -> None:
    path = spool_of(tmp_path, "wandb", key="$(evil)")
    assert read_head(path)[0]["run"] is None
    Path(f"{path}.ack").write_bytes(seal('{"offset": 1, "run": "; evil"}'))
    assert read_head(path)[0]["run"] is None


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_stranger_s_checkpoint_names_no_folder_and_no_server() -> None:
    entry = {"key": "1f", "run_id": "a1", "options": {"dir": "/home"}, "uri": "http://evil"}
    assert TrackedRun.restored({**entry, "apart": "yes"}, "allow", 8) == TrackedRun("1f", "a1", 8)
    for key in ("../../x", "a' or 'b", "", 5, None, "a" * 1000):
        run = TrackedRun.restored({"key": key, "apart": True}, "allow", 8)
        assert (run.run_id, run.after, run.apart) == (None, None, False)
        assert run.key != key


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a run with a text log, an average and a tracker."""
    folder = tmp_path_factory.mktemp("saved")
    hooks = [TextLoggerHook(interval=2), EMAHook(), KeepHook()]
    trainer = training.fit(folder, *hooks, work_dir=str(folder / "work"), val=2)
    trainer.save_checkpoint(folder / "x.ckpt")
    return folder / "x.ckpt"


ODD = [
    (None, 5),
    (None, []),
    ("iter", "x"),
    ("iter", -1),
    ("log_buffer", {"a": 5}),
    ("rng", [5]),
    ("data", None),
    ("hooks", [{"key": "x"}]),
    ("averages", 5),
    ("text_logs", {"a": None}),
    ("trackers", []),
    ("trackers", {"kept": 5}),
]


@pytest.mark.parametrize(("name", "value"), ODD, ids=repr)
def test_a_checkpoints_entry_of_another_form_is_refused(
    saved: Path, tmp_path: Path, name: str | None, value: Any
) -> None:
    checkpoint = torch.load(saved, weights_only=True)
    if name is None:
        checkpoint["lightning_hooks"] = value
    else:
        checkpoint["lightning_hooks"][name] = value
    torch.save(checkpoint, tmp_path / "odd.ckpt")
    hooks = [TextLoggerHook(interval=2), EMAHook(), KeepHook()]
    with pytest.raises(ValueError, match=f"'lightning_hooks' is damaged: .*{name or 'a dict'}"):
        training.fit(
            *(tmp_path, *hooks),
            **{"work_dir": str(tmp_path / "work"), "val": 2, "max_epochs": 2},
            ckpt_path=tmp_path / "odd.ckpt",
        )
