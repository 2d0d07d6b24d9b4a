"""Trackers upload the requested checkpoints and delete the checkpoints deleted locally."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    ClearMLLoggerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    TensorboardLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.delivery import sender
from lightning_hooks.loggers.delivery.record import Record, from_line, seal, to_line
from lightning_hooks.loggers.delivery.spool import Spool, read_head
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.wandb import WandbWriter
from support import training
from support.logs.trackers import (
    REAL_CLIENTS,
    client_of,
    read_wandb,
    replay_as_told,
    run_of,
    warnings_in,
)
from support.paths import ROOT
from support.processes import environment
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


class Scored(TinyModule):
    """A module with its best score in the second validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        done = self.trainer.global_step // 2
        self.log("accuracy", {1: 0.5, 2: 0.9}.get(done, 0.7), batch_size=2)


def fit(work: Path, *hooks: Any, host: bool = False, epochs: int = 3, **more: Any) -> L.Trainer:
    """Train for epochs of two iterations."""
    options = {"batches": 2, "val": 1, "max_epochs": epochs, "num_sanity_val_steps": 0, **more}
    return training.fit(work, *hooks, module=Scored, host=host, **options)


def mlflow(**more: Any) -> MlflowLoggerHook:
    return MlflowLoggerHook(**{"log_model": False, "timeout": 60.0, **more})


def of_run(path: Path) -> dict[str, str]:
    """Return the options to replay a spool into its run."""
    uri = f"sqlite:///{path.parent.parent}/mlflow.db"
    return {"tracking_uri": uri, "run_id": read_head(str(path))[0]["run"]}


def in_mlflow(work: Path) -> tuple[set[str], dict[str, str]]:
    """Return the checkpoints of an MLflow run and the checkpoint tags."""
    (db,) = work.rglob("mlflow.db")
    client = client_of(db)
    run = run_of(client)
    found = {Path(each.path).name for each in client.list_artifacts(run.info.run_id, "checkpoints")}
    tags = {k: v for k, v in run.data.tags.items() if k.startswith("checkpoint.")}
    return found, tags


def left(work: Path) -> list[str]:
    """Return the names of all files in spool folders."""
    return sorted(path.name for path in work.rglob("*") if path.parent.name == "spool")


@pytest.mark.parametrize(
    ("upload", "expected", "host"),
    [
        ("best", {"best_accuracy_epoch_2.pth"}, False),
        ("last", {"epoch_2.pth", "epoch_3.pth"}, True),
        ("all", {"best_accuracy_epoch_2.pth", "epoch_2.pth", "epoch_3.pth"}, False),
    ],
)
def test_mlflow_has_the_files_that_are_here(
    work: Path, upload: str, expected: set[str], host: bool
) -> None:
    pytest.importorskip("mlflow")
    writers = CheckpointHook(max_keep_ckpts=2, interval=1), BestCheckpointHook("accuracy")
    fit(work, *writers, mlflow(upload=upload), host=host)
    found, tags = in_mlflow(work)
    assert found == expected
    assert expected <= {path.name for path in work.rglob("*.pth") if "mlart" not in str(path)}
    names = {"best": "best_accuracy_epoch_2.pth", "last": "epoch_3.pth"}
    kinds = names if upload == "all" else {upload: names[upload]}
    assert tags == {f"checkpoint.{k}": f"checkpoints/{name}" for k, name in kinds.items()}
    assert left(work) == []
    (stored,) = work.rglob(f"artifacts/checkpoints/{names[next(iter(kinds))]}")
    assert (
        torch.load(stored, weights_only=True)["state_dict"].keys() == Scored().state_dict().keys()
    )


@pytest.mark.parametrize("background", [False, True])
def test_the_last_file_is_sent_after_an_early_end(work: Path, background: bool) -> None:
    pytest.importorskip("mlflow")

    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.trainer.should_stop = runner.iter == 2

    saving = CheckpointHook(2, by_epoch=False, max_keep_ckpts=1, background=background)
    options = {"val_check_interval": 1, "limit_val_batches": 1}
    fit(work, saving, mlflow(upload="last", by_epoch=False), Stop(), host=True, **options)
    assert in_mlflow(work)[0] == {path.name for path in work.glob("iter_*.pth")}


@pytest.mark.slow
def test_wandb_has_versions_with_aliases(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("wandb")
    writers = CheckpointHook(max_keep_ckpts=1, interval=1, save_best="accuracy")
    hook = WandbLoggerHook(upload="all", log_artifact=False, timeout=60.0)
    fit(work, writers, hook, host=True, epochs=2)
    artifacts = [r["artifact"] for r in read_wandb(work) if r["type"] == "artifact"]
    best = {"best_accuracy_epoch_1.pth", "best_accuracy_epoch_2.pth"}
    assert {a["manifest"]["contents"][0]["path"] for a in artifacts} == {
        *best,
        *("epoch_1.pth", "epoch_2.pth"),
    }
    assert len({a["name"] for a in artifacts}) == 1
    for each_one in artifacts:
        name = each_one["manifest"]["contents"][0]["path"]
        kind = "best" if name in best else "last"
        assert {*each_one["aliases"]} >= {name, kind}
        assert Path(each_one["manifest"]["contents"][0]["local_path"]).stat().st_size > 1000
    assert [each_one for each_one in warnings_in(caplog) if "deletes nothing offline" in each_one]
    assert left(work) == []


def test_wandb_deletes_a_version_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    deleted = []

    class Version:
        def __init__(self, path: str) -> None:
            self.path = path

        def delete(self, delete_aliases: bool) -> None:
            deleted.append((self.path, delete_aliases))

    class Server:
        def __init__(self, overrides: dict[str, str]) -> None:
            assert overrides == {"base_url": "https://wandb.here"}

        def artifact_exists(self, path: str) -> bool:
            return path.endswith("epoch_1.pth")

        artifact = Version

    class Run:
        id, entity, project, offline = "1f", "me", "digits", False
        settings = type("Settings", (), {"base_url": "https://wandb.here"})

    monkeypatch.setattr(wandb, "Api", Server)
    writer = WandbWriter(Run(), owned=True)
    writer.checkpoints(Record(0, 1.0, 1, checkpoints={"epoch_1.pth": None, "epoch_9.pth": None}))
    assert deleted == [("me/digits/checkpoint-1f:epoch_1.pth", True)]
    assert writer.note == ""


def test_clearml_has_artifacts(work: Path) -> None:
    pytest.importorskip("clearml")
    writers = CheckpointHook(max_keep_ckpts=1, interval=1), BestCheckpointHook("accuracy")
    fit(work, *writers, ClearMLLoggerHook(upload="all", timeout=60.0), host=True)
    (file,) = work.glob("clearml/offline/*/task.json")
    task = json.loads(file.read_text())
    expected = {"best_accuracy_epoch_2.pth", "epoch_3.pth"}
    assert {each["key"] for each in task["execution"]["artifacts"]} == expected
    assert {path.name for path in file.parent.glob("data/**/*.pth") if path.is_file()} == expected
    found = {k: v["value"] for k, v in task["hyperparams"]["Checkpoints"].items()}
    assert found == {"best": "best_accuracy_epoch_2.pth", "last": "epoch_3.pth"}


def test_a_resumed_run_deletes_what_the_first_process_has_sent(work: Path) -> None:
    pytest.importorskip("mlflow")

    def hooks() -> list[Any]:
        return [CheckpointHook(max_keep_ckpts=1, interval=1), mlflow(upload="last")]

    fit(work, *hooks(), host=True, epochs=1)
    assert in_mlflow(work)[0] == {"epoch_1.pth"}
    resumed = str(work / "epoch_1.pth")
    fit(work, *hooks(), host=True, epochs=2, ckpt_path=resumed)
    assert in_mlflow(work)[0] == {"epoch_2.pth"}


def test_checkpoints_outside_of_the_work_dir_are_sent(work: Path) -> None:
    pytest.importorskip("mlflow")
    saving = CheckpointHook(out_dir=str(work.parent / "other"), create_symlink=False)
    fit(work, saving, mlflow(upload="last"), host=True, epochs=1)
    (path,) = work.parent.glob("other/work/*.pth")
    assert in_mlflow(work)[0] == {path.name}


class Keeper:
    """A user's hook with an attribute name of our checkpoint hooks."""

    _kept_kinds = ("best",)

    def after_train_iter(self, runner: Any) -> None: ...


def test_what_cannot_be_sent_is_answered(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(ValueError, match="upload"):
        mlflow(upload="first")
    with pytest.raises(TypeError, match="upload"):
        TensorboardLoggerHook(upload="best")  # type: ignore[call-arg]
    fit(work, Keeper(), CheckpointHook(), mlflow(upload="best"), host=True, epochs=1)
    (warning,) = warnings_in(caplog)
    assert "upload='best' sends nothing, as no hook writes such a file: add Best" in warning
    assert in_mlflow(work)[0] == set()


class Stuck:
    """Replaces MLflow's upload of checkpoints with a failing or hanging call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trouble: Any) -> None:
        from lightning_hooks.loggers.trackers.mlflow import MlflowWriter

        self.own, self.trouble, self.calls = MlflowWriter.send_checkpoint, trouble, 0
        monkeypatch.setattr(MlflowWriter, "send_checkpoint", self.send)

    def send(self, *arguments: Any) -> None:
        self.calls += 1
        self.trouble()


def test_a_hanging_server_costs_no_step_and_is_replayed(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(sender, "LINGER", 0.0)
    with monkeypatch.context() as patch:
        stuck = Stuck(patch, lambda: time.sleep(30))
        hook = mlflow(upload="last", timeout=1.0)
        begin = time.monotonic()
        fit(work, CheckpointHook(max_keep_ckpts=1), hook, host=True, epochs=2)
        assert time.monotonic() - begin < 15
    spool, *folders = sorted(left(work), key=lambda name: name.startswith("upload_"))
    assert stuck.calls <= 1
    assert spool.endswith(".jsonl")
    assert folders
    (warning,) = [each for each in warnings_in(caplog) if "lightning-hooks replay" in each]
    assert "mlflow has taken" in warning
    (path,) = work.glob("spool/*.jsonl")
    (work / "epoch_2.pth").unlink()  # a copy waits next to the spool
    assert path.exists()
    replay_as_told(caplog)
    assert in_mlflow(work)[0] == {"epoch_2.pth"}
    assert left(work) == []


def test_an_artifact_store_that_is_down_holds_no_values_back(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(sender, "_BACKOFF", (0.01, 0.02))

    def refuse() -> None:
        raise ConnectionError("no bucket")

    with monkeypatch.context() as patch:
        stuck = Stuck(patch, refuse)
        fit(work, CheckpointHook(interval=1), mlflow(upload="last"), host=True, epochs=2)
    client = client_of(work / "mlflow.db")
    assert len(client.get_metric_history(run_of(client).info.run_id, "learning_rate")) > 0
    assert stuck.calls >= 7
    assert any("no bucket" in each_one for each_one in warnings_in(caplog))
    (path,) = work.glob("spool/*.refused.jsonl")
    assert replay(str(path), "mlflow", **of_run(path)) == 2
    assert in_mlflow(work)[0] == {"epoch_1.pth", "epoch_2.pth"}
    assert left(work) == []


def upload_line(**changes: Any) -> bytes:
    fields = {"folder": "upload_abcdefgh", "aliases": ["last"], **changes}
    name = changes.pop("name", "epoch_1.pth")
    fields.pop("name", None)
    record = {"seq": 0, "time": 1.0, "step": 2, "checkpoints": {name: fields}}
    return seal(json.dumps(record))


def test_a_record_of_checkpoints_survives_its_line(tmp_path: Path) -> None:
    upload = Upload(str(tmp_path / "upload_abcdefgh" / "epoch_1.pth"), ("best", "last"))
    record = Record(3, 1.0, 2, checkpoints={"epoch_1.pth": upload, "epoch_0.pth": None})
    assert from_line(to_line(record), str(tmp_path)) == record
    assert str(tmp_path).encode() not in to_line(record)


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": ".."},
        {"folder": "/etc"},
        {"folder": "upload_a/../../"},
        {"folder": "upload_abcdefgh/.."},
        {"folder": None},
        {"name": "../../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"name": "a/b.pth"},
        {"name": ".."},
        {"name": ""},
        {"aliases": ["a/b"]},
        {"aliases": [5]},
        {"aliases": None},
    ],
)
def test_a_hostile_line_names_no_other_file(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a line must hold a record"):
        from_line(upload_line(**changes), "/work/spool")
    for name in ("../x", "a/b", "..", "-rf"):
        gone = {"seq": 0, "time": 1.0, "step": 2, "checkpoints": {name: None}}
        with pytest.raises(ValueError, match="a line must hold a record"):
            from_line(seal(json.dumps(gone)))


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_link_in_the_place_of_a_checkpoint_is_not_sent(work: Path, is_folder: bool) -> None:
    pytest.importorskip("mlflow")
    secret = work.parent / "secret" / "epoch_1.pth"
    secret.parent.mkdir()
    secret.write_text("secret")
    head = {"writer": "mlflow", "key": "1f"}
    spool = Spool(str(work / "spool" / "old-mlflow.jsonl"), head)
    waiting = work / "spool" / "upload_abcdefgh" / "epoch_1.pth"
    spool.append(1.0, 2, checkpoints={"epoch_1.pth": Upload(str(waiting))})
    spool.close(keep=True)
    if is_folder:
        waiting.parent.symlink_to(secret.parent)
    else:
        waiting.parent.mkdir()
        waiting.symlink_to(secret)
    with pytest.raises(ValueError, match="is gone, or is a link"):
        replay(spool.path, "mlflow", **of_run(Path(spool.path)))
    assert secret.read_text() == "secret"
    assert not list(work.rglob("artifacts/**/*.pth"))


def test_a_model_with_an_example_input_has_a_signature(work: Path) -> None:
    pytest.importorskip("mlflow")
    import mlflow.models

    class Exemplary(Scored):
        example_input_array = torch.zeros(2, 4)

        def __reduce__(self) -> Any:  # a class of a function cannot be pickled
            return Scored, ()

    for module, inputs in ((Scored, None), (Exemplary, "[Tensor('float32', (-1, 4))]")):
        hooks = [MlflowLoggerHook(timeout=60.0)]
        trainer = make_trainer(work, HookAdapter(hooks, work_dir=str(work)), max_epochs=1)
        trainer.fit(module(), make_loader(1), make_loader(1))
        if not hasattr(mlflow.MlflowClient, "search_logged_models"):
            pytest.skip("MLflow 2 has no LoggedModel")
        newest = max(work.glob("mlartifacts/models/*"), key=lambda path: path.stat().st_mtime_ns)
        signature = mlflow.models.get_model_info(str(newest / "artifacts")).signature
        assert (signature and str(signature.inputs)) == inputs


PROGRAM = """
import os, signal, sys
import lightning_hooks as h
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter
from support.training import TinyModule, make_loader, make_trainer

MlflowWriter.send_checkpoint = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
work = sys.argv[1]
hooks = [h.CheckpointHook(), h.MlflowLoggerHook(log_model=False, timeout=60.0, upload="last")]
adapter = h.HookAdapter(hooks, work_dir=work)
make_trainer(work, adapter, max_epochs=1).fit(TinyModule(), make_loader(2), make_loader(1))
"""


@pytest.mark.slow
def test_what_a_killed_process_has_not_sent_is_replayed(work: Path) -> None:
    pytest.importorskip("mlflow")
    variables = {**environment(), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    variables["MLFLOW_DISABLE_TELEMETRY"] = "true"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(work)]
    done = subprocess.run(command, env=variables, cwd=work, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    (path,) = work.glob("spool/*.jsonl")
    assert replay(str(path), "mlflow", **of_run(path)) > 0
    assert in_mlflow(work)[0] == {"epoch_1.pth"}
    assert left(work) == []
    os.stat(work / "epoch_1.pth")


RANKS = """
import sys
import lightning_hooks as h
from lightning_hooks.loggers.delivery.upload import Upload
from support.training import TinyModule, make_loader, make_trainer, two_ranks

work, staged = sys.argv[1], Upload.staged
hooks = [h.CheckpointHook(), h.MlflowLoggerHook(log_model=False, timeout=60.0, upload="all")]
adapter = h.HookAdapter(hooks, work_dir=work)
trainer = make_trainer(work, adapter, max_epochs=1, **two_ranks())

def count(*args):
    with open(f"{work}/staged", "a") as file:
        file.write(f"{trainer.global_rank} ")
    return staged(*args)

Upload.staged = count
trainer.fit(TinyModule(), make_loader(2), make_loader(2))
"""


@pytest.mark.slow
def test_a_second_rank_sends_nothing(work: Path) -> None:
    pytest.importorskip("mlflow")
    script = work.parent / "ranks.py"
    script.write_text(RANKS)
    variables = {**environment(), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    variables["MLFLOW_DISABLE_TELEMETRY"] = "true"
    command = [sys.executable, "-W", "ignore", str(script), str(work)]
    done = subprocess.run(command, env=variables, cwd=work, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert (work / "staged").read_text() == "0 "
    assert in_mlflow(work)[0] == {"epoch_1.pth"}


class Hits(Scored):
    """Has a test step."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("hits", 1.0)


def test_an_evaluation_after_a_fit_arrives_beside_an_upload(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    hooks = [mlflow(upload="best"), TensorboardLoggerHook()]
    options = {"enable_checkpointing": True, "max_epochs": 1}
    trainer = make_trainer(work, BestCheckpointHook("accuracy"), *hooks, **options)
    trainer.fit(Hits(), make_loader(2), make_loader(1))
    trainer.validate(Hits(), make_loader(1), verbose=False)
    trainer.test(Hits(), make_loader(1), verbose=False)
    for hook in hooks:
        status = hook.status()
        assert (status["sent"], status["error"]) == (status["logged"], None)
    run = run_of(client_of(work / "mlflow.db"))
    assert (run.data.metrics["test/hits"], run.info.status) == (1.0, "FINISHED")
    assert left(work) == []
    assert warnings_in(caplog) == []
