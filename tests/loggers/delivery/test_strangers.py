"""A stranger's spool or checkpoint writes no file outside, gets no secret and runs no code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import DvcliveLoggerHook, EMAHook, TextLoggerHook
from lightning_hooks.cli import main
from lightning_hooks.loggers.delivery.destination import check_paths, check_server, taken_settings
from lightning_hooks.loggers.delivery.spool import Spool
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.replay import replay, writer_class
from support import training
from support.logs.kept import KeepHook, Kept


def spool_of(work: Path, writer: str, **arguments: Any) -> str:
    """Leave a spool with one record in a work dir."""
    head = {"writer": writer, "arguments": arguments, "key": "1f"}
    spool = Spool(str(work / "spool/x.jsonl"), head)
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
    monkeypatch.setenv("WANDB_MODE", "offline")
    return folder


PLACES = {
    "tensorboard": "tf_logs/events*",
    "dvclive": "dvclive/plots/metrics/loss.tsv",
    "wandb": "wandb/offline-run-*/*.wandb",
    "mlflow": "mlartifacts/**/1.png",
    "neptune": ".neptune/offline/run__*/data-1.log",
}
SLOW = "wandb", "mlflow", "neptune"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PLACES]
)
def test_a_spool_that_names_no_folder_writes_into_its_work_dir(
    tmp_path: Path, here: Path, name: str
) -> None:
    pytest.importorskip(name)
    assert replay(spool_of(tmp_path / "work", name)) == 1
    assert [*here.iterdir()] == []
    assert len([*(tmp_path / "work").glob(PLACES[name])]) == 1


def test_every_client_gets_a_place_for_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_DIR", raising=False)

    def placed(name: str, **arguments: Any) -> dict[str, Any]:
        return writer_class(name).placed(arguments, "/work")

    assert placed("wandb", init={"mode": "offline"})["init"] == {"mode": "offline", "dir": "/work"}
    assert placed("mlflow") == {
        "uri": "sqlite:////work/mlflow.db",
        "artifacts": "file:///work/mlartifacts",
        "experiment": "work",
    }
    assert placed("mlflow", uri="http://host") == {"uri": "http://host"}
    assert placed("neptune", folder=None) == {"folder": "/work/.neptune"}
    assert placed("clearml", offline=True) == {"offline": True, "folder": "/work/clearml"}
    assert placed("clearml") == {}
    loggers = [{"type": "CSVLogger"}, {"type": "MLFlowLogger", "save_dir": None}]
    made = placed("lightning", loggers=loggers)["loggers"]
    assert [each["save_dir"] for each in made] == ["/work", "/work"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"log_dir": "/etc/x"},
        {"log_dir": "s3://bucket/x"},
        {"uri": "sqlite:////var/x.db"},
        {"uri": "sqlite+pysqlite:////var/x.db"},
        {"uri": "sqlite:///file:/var/x.db?uri=true"},
        {"uri": "FILE:///srv"},
        {"uri": "file:/srv"},
        {"uri": "file:///srv%2fx"},
        {"options": {"dir": "../../elsewhere"}},
        {"options": {"dvcyaml": "dvc.yaml"}},
        {"init": {"log_to_filename": "/home/x/.bashrc"}},
        {"init": {"id": "../../../elsewhere"}},
        {"init": {"dir": "~/x"}},
        {"loggers": [{"type": "CSVLogger", "save_dir": "/srv"}]},
        {"loggers": [{"type": "CSVLogger", "name": "../../x"}]},
        {"artifacts": "file:///srv"},
    ],
    ids=repr,
)
def test_a_stranger_s_spool_writes_no_file_outside_of_its_folder(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    path = tmp_path / "work/spool/x.jsonl"
    with pytest.raises(ValueError, match=r"outside of .*work; if that is right, name a folder"):
        check_paths(arguments, str(path))
    inside = json.loads(json.dumps(arguments).replace("/etc", str(tmp_path / "work")))
    if inside != arguments:
        check_paths(inside, str(path))
    if not any(each in repr(arguments) for each in ("s3:", "?uri=")):
        check_paths(arguments, str(path), within="/")


@pytest.mark.parametrize("value", [True, 7, 0.5])
def test_a_place_that_is_no_text_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=f"has log_dir={value}, which is no path"):
        check_paths({"log_dir": value}, str(tmp_path / "spool/x.jsonl"))
    check_paths({"dvcyaml": False, "dir": None}, str(tmp_path / "spool/x.jsonl"))


def test_servers_and_what_only_looks_like_a_path_are_no_files(tmp_path: Path) -> None:
    config = {"data": "/datasets/coco", "weights": "../x.pth"}
    values = {"uri": "databricks", "init": {"project": "digits", "config": config}}
    check_paths({**values, "tags": {"from": "/home/me"}}, str(tmp_path / "spool/x.jsonl"))
    check_paths({"uri": "postgresql://host/db"}, str(tmp_path / "spool/x.jsonl"))
    check_paths({"log_dir": "s3://mine/a"}, str(tmp_path / "x.jsonl"), within="s3://mine")
    with pytest.raises(ValueError, match="outside of s3://mine"):
        check_paths({"log_dir": "s3://mine-not/a"}, str(tmp_path / "x.jsonl"), within="s3://mine")


def test_a_link_in_a_stranger_s_folder_leads_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    work, victim = tmp_path / "work", tmp_path / "victim"
    victim.mkdir()
    path = spool_of(work, "dvclive")
    (work / "dvclive").mkdir()
    (work / "dvclive/plots").symlink_to(victim)
    with pytest.raises(ValueError, match="outside of"):
        replay(path)
    (work / "dvclive/plots").unlink()
    (work / "dvclive").rmdir()
    (work / "dvclive").symlink_to(victim)
    with pytest.raises(ValueError, match="outside of"):
        replay(path)
    assert [*victim.iterdir()] == []


def test_images_go_where_a_stranger_s_store_says_only_if_that_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(Kept):
        def places(self) -> list[str]:
            return [f"file://{tmp_path}/elsewhere"]

    kept = Elsewhere()
    monkeypatch.setattr("lightning_hooks.loggers.replay.open_writer", lambda *a, **k: kept)
    path = spool_of(tmp_path / "work", "mlflow")
    with pytest.raises(ValueError, match="elsewhere, outside of"):
        replay(path)
    assert kept.records == []
    assert replay(path, within=str(tmp_path)) == 1


@pytest.mark.slow
def test_a_stranger_s_mlflow_store_names_no_place_outside(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    work = tmp_path / "work"
    work.mkdir()
    store = mlflow.MlflowClient(f"sqlite:///{work}/mlflow.db")
    experiment = store.create_experiment("work", artifact_location=f"file://{tmp_path}/victim")
    run = store.create_run(experiment)
    for arguments in ({}, {"run_id": run.info.run_id}):
        with pytest.raises(ValueError, match=r"victim.*outside of"):
            replay(spool_of(work, "mlflow", **arguments))
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    ("arguments", "variable", "secret"),
    [
        ({"uri": "http://evil"}, "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"),
        ({"uri": "HTTPS://evil"}, "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_PASSWORD"),
        (
            {"loggers": [{"type": "MLFlowLogger", "tracking_uri": "http://evil"}]},
            *("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"),
        ),
        (
            {"init": {"settings": {"base_url": "http://evil"}}},
            *("WANDB_BASE_URL", "WANDB_API_KEY"),
        ),
    ],
)
def test_no_secret_goes_to_a_stranger_s_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: dict[str, Any],
    variable: str,
    secret: str,
) -> None:
    pytest.importorskip("rich")  # of the command
    monkeypatch.delenv(variable, raising=False)
    check_server(arguments, "x.jsonl")  # there is none
    monkeypatch.setenv(secret, "s3cret")
    with pytest.raises(
        ValueError, match=rf"would get what is in .*{secret}.*set {variable}=(?i:http)"
    ):
        check_server(arguments, "x.jsonl")
    monkeypatch.setenv(variable, "http://me:1@evil/")
    if "HTTPS" not in repr(arguments):
        check_server(arguments, "x.jsonl")
    monkeypatch.delenv(variable)
    path = spool_of(tmp_path, "lightning" if "loggers" in arguments else "mlflow", **arguments)
    with pytest.raises(SystemExit, match="2"):
        main(["replay", path])
    (line,) = capsys.readouterr().err.splitlines()
    assert "names the server" in line
    assert "s3cret" not in line


def test_settings_that_name_programs_proxies_and_sources_are_not_taken() -> None:
    evil = {"x_executable": "/x", "https_proxy": "http://evil", "insecure_disable_ssl": True}
    init = {"settings": {**evil, "mode": "offline"}, "save_code": True, "project": "digits"}
    assert taken_settings({"init": init, "source_files": ["~/.ssh/id"], "save_dvc_exp": True}) == {
        "init": {"settings": {"mode": "offline"}, "save_code": False, "project": "digits"},
        "source_files": [],
        "save_dvc_exp": False,
    }


def test_a_stranger_s_spool_makes_loggers_of_lightning_s_and_nothing_else(tmp_path: Path) -> None:
    path = spool_of(tmp_path, "lightning", loggers=[{"type": "lightning.Trainer"}])
    with pytest.raises(ValueError, match="lightning has no logger 'Trainer'"):
        replay(path)
    path = spool_of(tmp_path, "lightning", loggers=["CSVLogger"])
    with pytest.raises(ValueError, match="has a logger without type: 'CSVLogger'"):
        replay(path)


@pytest.mark.parametrize("name", ["evil.Logger", "antigravity.Logger", "subprocess.Popen"])
def test_no_module_beside_a_stranger_s_spool_is_imported(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (here / "evil.py").write_text("open('ran', 'w')")
    monkeypatch.syspath_prepend("")
    before = {*sys.modules}
    path = spool_of(tmp_path, "lightning", loggers=[{"type": name}])
    with pytest.raises(ValueError, match=f"names the logger {name}, which is not in an installed"):
        replay(path)
    assert not (here / "ran").exists()
    assert not {"evil", "antigravity"} & ({*sys.modules} - before)


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_stranger_s_checkpoint_names_no_folder_and_no_server() -> None:
    opened = {"options": {"dir": "/home"}, "uri": "http://evil", "run_id": "a1", "resume": False}
    entry = {"key": "1f", "opened": opened, "apart": "yes"}
    assert TrackedRun.restored(entry, "allow", 8) == TrackedRun("1f", {"run_id": "a1"}, 8)
    for key in ("../../x", "a' or 'b", "", 5, None, "a" * 1000):
        run = TrackedRun.restored({"key": key, "apart": True}, "allow", 8)
        assert (run.opened, run.after, run.apart) == ({}, None, False)
        assert run.key != key


@pytest.mark.slow
def test_a_run_that_resumes_from_a_stranger_s_checkpoint_deletes_nothing_elsewhere(
    tmp_path: Path,
) -> None:
    pytest.importorskip("dvclive")
    victim = tmp_path / "victim/plots/metrics/mine.tsv"
    victim.parent.mkdir(parents=True)
    victim.write_text("mine")

    options: dict[str, Any] = {"work_dir": str(tmp_path / "work"), "val": 2}
    saved = tmp_path / "x.ckpt"
    training.fit(tmp_path, DvcliveLoggerHook(), **options).save_checkpoint(saved)
    checkpoint = torch.load(saved, weights_only=True)
    elsewhere = {"dir": str(tmp_path / "victim"), "save_dvc_exp": False}
    opened = {"options": elsewhere, "resume": False}
    checkpoint["lightning_hooks"]["trackers"] = {"dvclive": [{"key": "1f", "opened": opened}]}
    torch.save(checkpoint, saved)
    training.fit(tmp_path, DvcliveLoggerHook(), ckpt_path=saved, max_epochs=2, **options)
    assert victim.read_text() == "mine"
    assert (tmp_path / "work/dvclive/metrics.json").exists()


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
def test_an_entry_of_a_checkpoint_that_has_not_our_form_is_refused(
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
