"""Where trackers depart from mmcv's, one test each; and runs that are there already."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from support.logs.trackers import (
    client_of,
    fit,
    history,
    points,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_visdom_log,
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


class Talk(Hook):
    """Prints what a client that captures the output would keep."""

    def after_train_iter(self, runner: Any) -> None:
        print("a line for the console")


def everything_in(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


# -- TensorBoard -------------------------------------------------------------------------------


def test_departure_tensorboardx_is_not_used(work: Path) -> None:
    hook = TensorboardLoggerHook(interval=2)
    fit(work, hook, epochs=1)
    assert type(hook.writer).__module__.startswith("torch.utils.tensorboard")


def test_tensorboard_uses_a_writer_that_is_given(work: Path, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "mine")) as writer:
        fit(work, TensorboardLoggerHook(interval=2, run=writer), epochs=1)
        writer.add_scalar("mine", 1.0, 5)
    rows, _ = read_tensorboard(tmp_path / "mine")
    assert rows[5].keys() >= {"mine", "val/val_loss"}
    assert not (work / "tf_logs").exists()


# -- DVCLive -----------------------------------------------------------------------------------


def test_departure_dvclive_needs_no_git_and_makes_no_report(work: Path) -> None:
    pytest.importorskip("dvclive")
    fit(work, DvcliveLoggerHook(), epochs=1)
    assert {p.name for p in (work / "dvclive").iterdir()} == {"metrics.json", "plots"}
    assert os.listdir() == []


def test_departure_a_dvclive_run_that_goes_on_keeps_what_the_folder_has(
    work: Path, tmp_path: Path
) -> None:
    pytest.importorskip("dvclive")

    def train(epochs: int, **how: Any) -> Any:
        adapter = HookAdapter([DvcliveLoggerHook()], work_dir=str(work))
        trainer = make_trainer(tmp_path, adapter, max_epochs=epochs, num_sanity_val_steps=0)
        trainer.fit(TinyModule(), make_loader(4), make_loader(2), **how)
        return trainer

    train(1).save_checkpoint(tmp_path / "one.ckpt")
    train(2, ckpt_path=tmp_path / "one.ckpt", weights_only=False)
    assert read_dvclive(work / "dvclive").keys() == {1, 2}


def test_dvclive_uses_the_live_of_its_logger_for_lightning(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    from dvclive.lightning import DVCLiveLogger

    logger = DVCLiveLogger(
        dir=str(tmp_path / "mine"), save_dvc_exp=False, report=None, dvcyaml=None
    )
    fit(work, DvcliveLoggerHook(run=logger), epochs=1)
    assert "train/loss" in read_dvclive(tmp_path / "mine")[1]
    assert not (work / "dvclive").exists()


# -- ClearML -----------------------------------------------------------------------------------


def copies() -> set[str]:
    """The processes that look like this one; a program that is being started does for a moment."""
    children = " ".join(p.read_text() for p in Path("/proc/self/task").glob("*/children")).split()
    own, found = Path("/proc/self/cmdline").read_bytes(), set()
    for pid in children:
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/cmdline").read_bytes() == own:
                found.add(pid)
    return found


class Forks(Hook):
    """Looks for copies of this process when the tracker has sent something."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def after_train_epoch(self, runner: Any) -> None:
        while not self.tracker.status()["sent"]:
            time.sleep(0.05)
        for _ in range(5):
            self.found = copies()
            time.sleep(0.1)
            self.found &= copies()
            if not self.found:
                break


def test_departure_clearml_is_offline_captures_nothing_and_forks_not(work: Path) -> None:
    pytest.importorskip("clearml")
    hook = ClearMLLoggerHook(interval=2)
    look = Forks(hook)
    fit(work, hook, Talk(), look, epochs=1)
    assert read_clearml(work / "clearml").keys() == {2, 4, 5}
    assert b"a line for the console" not in everything_in(work / "clearml")
    assert not look.found


def test_departure_each_clearml_run_is_a_new_task(work: Path) -> None:
    pytest.importorskip("clearml")
    for _ in range(2):
        fit(work, ClearMLLoggerHook({"task_name": "same"}, interval=2), epochs=1)
    assert len([*(work / "clearml").glob("offline/*/task.json")]) == 2


def test_departure_the_programs_clearml_task_is_used_and_left_open(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clearml = pytest.importorskip("clearml")
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    clearml.Task.set_offline(True)
    task = clearml.Task.init("p", "t", reuse_last_task_id=False, auto_connect_streams=False)
    try:
        fit(work, ClearMLLoggerHook(interval=2), epochs=1)
        fit(work, ClearMLLoggerHook(interval=2, run=task), epochs=1)
        task.get_logger().report_scalar("mine", "mine", 1.0, 7)
        task.flush(wait_for_uploads=True)  # close alone may leave the last one out
    finally:
        task.close()
    rows = read_clearml(tmp_path / "cache")
    assert rows.keys() == {2, 4, 5, 7}
    assert not (work / "clearml").exists()


# -- Weights & Biases, MLflow, Neptune, Visdom -------------------------------------------------


def test_departure_global_step_is_the_axis_in_a_wandb_run_that_is_given(work: Path) -> None:
    import wandb

    with wandb.init(dir=str(work), settings={"console": "off"}) as run:
        fit(work, WandbLoggerHook(interval=2, log_artifact=False, run=run), epochs=1)
    records = read_wandb(work)
    axes = {r["metric"]["name"]: r["metric"] for r in records if r["type"] == "metric"}
    assert axes["train/loss"]["step_metric"] == "global_step"
    assert [row["global_step"] for row in history(records).values()] == [2, 4, 5]


def test_departure_mlflow_is_an_sqlite_file_and_its_global_state_stays(work: Path) -> None:
    import mlflow

    before = mlflow.get_tracking_uri()
    fit(work, MlflowLoggerHook(interval=2, log_model=False), epochs=1)
    assert points(work / "mlflow.db").keys() == {2, 4, 5}
    assert mlflow.get_tracking_uri() == before
    assert not mlflow.is_tracking_uri_set()


def test_departure_mlflow_has_the_model_without_a_wrapper(work: Path) -> None:
    import mlflow

    fit(work, MlflowLoggerHook(interval=2), epochs=1)
    folder = run_of(client_of(work / "mlflow.db")).info.artifact_uri.removeprefix("file://")
    assert type(mlflow.pytorch.load_model(f"{folder}/models")) is TinyModule


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


def test_departure_neptune_captures_neither_output_nor_hardware(work: Path) -> None:
    fit(work, NeptuneLoggerHook(interval=2), Talk(), epochs=1)
    assert b"a line for the console" not in everything_in(work / ".neptune")
    assert not [x for x in read_neptune(work) if x.get("path", [""])[0] == "monitoring"]


def test_neptune_uses_a_run_that_is_given(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import neptune

    monkeypatch.setenv("NEPTUNE_DATA_DIRECTORY", str(work / ".neptune"))
    with neptune.init_run(
        mode="offline",
        source_files=[],
        git_ref=False,
        capture_stdout=False,
        capture_stderr=False,
        capture_hardware_metrics=False,
    ) as run:
        fit(work, NeptuneLoggerHook(interval=2, run=run), epochs=1)
        run["mine"].append(1.0, step=7)
    rows = series(read_neptune(work))
    assert rows.keys() == {2, 4, 5, 7}
    assert len([*work.glob(".neptune/offline/run__*")]) == 1


def test_visdom_uses_a_client_that_is_given(work: Path, tmp_path: Path) -> None:
    visdom = pytest.importorskip("visdom")
    (tmp_path / "mine").mkdir()
    client = visdom.Visdom(offline=True, log_to_filename=str(tmp_path / "mine" / "x.log"))
    fit(work, VisdomLoggerHook(interval=2, run=client), epochs=1)
    assert read_visdom_log(tmp_path / "mine").keys() == {2, 4, 5}
    assert not (work / "visdom").exists()


@pytest.mark.parametrize(
    "hook",
    [
        ClearMLLoggerHook,
        DvcliveLoggerHook,
        MlflowLoggerHook,
        NeptuneLoggerHook,
        TensorboardLoggerHook,
        VisdomLoggerHook,
        WandbLoggerHook,
    ],
)
def test_what_is_no_run_is_refused(hook: Any) -> None:
    pytest.importorskip(hook.package)
    match = f"run must be the client's run or a Lightning Logger for {hook.__name__}, got 'mine'"
    with pytest.raises(TypeError, match=match):
        hook(run="mine")


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (lambda: ClearMLLoggerHook({"projct_name": "a"}), "init has .* mean 'project_name'"),
        (lambda: DvcliveLoggerHook(intervall=5), "Live has no argument 'intervall'; known: "),
        (lambda: VisdomLoggerHook({"prt": 1}), "Visdom has no argument 'prt'; did you mean 'port'"),
        (lambda: WandbLoggerHook({"projet": "a"}), "init has .* mean 'project'"),
    ],
)
def test_departure_what_a_client_does_not_know_is_refused_when_the_run_begins(
    hook: Any, message: str, work: Path
) -> None:
    made = hook()
    pytest.importorskip(made.package)
    module = TinyModule()
    with pytest.raises(TypeError, match=f"{type(made).__name__}: {message}"):
        fit(work, made, module=module)
    assert not module.losses
