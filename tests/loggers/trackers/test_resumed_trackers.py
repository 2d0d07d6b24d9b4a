"""What trackers get when a run goes back to a checkpoint."""

from __future__ import annotations

import csv
import json
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    CheckpointHook,
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
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.mlflow import MlflowWriter
from lightning_hooks.loggers.trackers.neptune import read_neptune
from support.logs import trackers
from support.logs.kept import KeepHook, Kept
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint"),
    # the clients', of each other and of Python
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(work: Path, hook: Any, epochs: int, ckpt: str | None = None, **kwargs: Any) -> None:
    hooks = CheckpointHook(interval=2, by_epoch=False), hook
    adapter = HookAdapter(list(hooks), work_dir=str(work), **kwargs)
    trainer = make_trainer(work, adapter, max_epochs=epochs)
    path = None if ckpt is None else str(work / ckpt)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=path)


@pytest.mark.parametrize("ckpt", ["iter_4.pth", "iter_6.pth"])
def test_departure_tensorboard_takes_back_what_was_lost(work: Path, ckpt: str) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(work, TensorboardLoggerHook(interval=1, strict=True), epochs=3)
    run(work, TensorboardLoggerHook(interval=1, strict=True), epochs=3, ckpt=ckpt)
    reader = accumulator.EventAccumulator(str(work / "tf_logs"))
    reader.Reload()
    steps = Counter(event.step for event in reader.Scalars("train/loss"))
    done = int(ckpt[5])
    assert sorted(steps) == list(range(1, 13))
    # the step after an epoch is its validation's, too: it is kept, and with it one point
    assert {step for step, times in steps.items() if times > 1} <= {done + 1}
    validated = [event.step for event in reader.Scalars("val/val_loss")]
    assert validated == sorted(set(validated))
    assert len(validated) == 3
    # TensorBoard reads its files in the order of their names, which begin with the second
    seconds = [file.name.split(".")[3] for file in (work / "tf_logs").iterdir()]
    assert len({*seconds}) == len(seconds) == 2


def test_in_a_given_mlflow_run_a_repeated_step_has_both_values(work: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{work}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    made = client.create_run("0")
    for value in (1.0, 2.0):
        writer = MlflowWriter.connect(uri=uri, run_id=made.info.run_id)
        from lightning_hooks.loggers.delivery.record import Record

        writer.write([Record(0, value, 7, {"loss": value})])
    history = client.get_metric_history(made.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(7, 1.0), (7, 2.0)]
    assert client.get_run(made.info.run_id).data.metrics["loss"] == 2.0


class Dies(Hook):
    """Ends the run as a failed one after seven iterations."""

    priority = "VERY_LOW"

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter + 1 == 7:
            raise RuntimeError("the machine is gone")


def die_and_resume(work: Path, make: Any, ckpt: str = "iter_4.pth", *, host: bool = True) -> Any:
    """Train until it fails at iteration 7 of 8, and resume from an earlier checkpoint."""

    def train(hook: Any, *others: Hook, ckpt: str | None = None) -> None:
        hook.synchronous = True  # the client is there before the first checkpoint
        hooks = [CheckpointHook(interval=2, by_epoch=False, out_dir=str(work)), hook, *others]
        options: dict[str, Any] = {"work_dir": str(work)}
        callbacks = (
            [HookAdapter(hooks, **options)] if host else [HookAdapter([], **options), *hooks]
        )
        trainer = make_trainer(work, *callbacks, max_epochs=2, enable_checkpointing=not host)
        path = None if ckpt is None else str(work / ckpt)
        trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=path)

    with pytest.raises(RuntimeError, match="the machine is gone"):
        train(make(), Dies())
    hook = make()
    train(hook, ckpt=ckpt)
    return hook


def steps_in_mlflow(work: Path) -> list[int]:
    with sqlite3.connect(work / "mlflow.db") as db:
        assert db.execute("select status from runs").fetchall() == [("FINISHED",)]
        rows = db.execute("select step from metrics where key = 'train/loss'").fetchall()
    return [step for (step,) in rows]


def steps_in_wandb(work: Path) -> list[int]:
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"))
    assert len({file.name for file in files}) == 1  # the run's id
    rows = [trackers.history(trackers.inspect_wandb(file)) for file in files]
    return [step for found in rows for step, row in found.items() if "train/loss" in row]


def steps_in_clearml(work: Path) -> list[int]:
    (path,) = work.glob("clearml/offline/*/metrics.jsonl")
    events = [event for line in path.read_text().splitlines() for event in json.loads(line)]
    return [event["iter"] for event in events if event["metric"] == "train/loss"]


def steps_in_dvclive(work: Path) -> list[int]:
    with (work / "dvclive/plots/metrics/train/loss.tsv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file, delimiter="\t")]


def steps_in_visdom(work: Path) -> list[int]:
    (path,) = work.glob("visdom/*.log")
    windows = [json.loads(line)[1] for line in path.read_text().splitlines()]
    lines = [each["data"][0]["x"] for each in windows if each["win"] == "train/loss"]
    return [int(step) for xs in lines for step in xs]


def steps_in_tensorboard(work: Path) -> list[int]:
    _, events = trackers.read_tensorboard(work / "tf_logs")
    return [event.step for event in events.Scalars("train/loss")]


BACKENDS = {
    "clearml": (ClearMLLoggerHook, {"timeout": 60.0}, steps_in_clearml),
    "dvclive": (DvcliveLoggerHook, {"by_epoch": False}, steps_in_dvclive),
    "mlflow": (MlflowLoggerHook, {"log_model": False}, steps_in_mlflow),
    "tensorboard": (TensorboardLoggerHook, {"by_epoch": False}, steps_in_tensorboard),
    "visdom": (VisdomLoggerHook, {}, steps_in_visdom),
    "wandb": (WandbLoggerHook, {"log_artifact": False}, steps_in_wandb),
}


SLOW = {"clearml", "dvclive", "wandb"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in BACKENDS]
)
def test_departure_a_resumed_run_continues_its_run_and_doubles_nothing(
    name: str, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cls, options, read = BACKENDS[name]
    die_and_resume(work, lambda: cls(interval=1, strict=True, **options), host=name != "mlflow")
    end = time.monotonic() + (20 if name == "clearml" else 0)  # its client writes the last later
    while len(read(work)) < 8 and time.monotonic() < end:
        time.sleep(0.1)
    assert sorted(read(work)) == list(range(1, 9))
    if name != "tensorboard":  # there the points are taken back, and come again
        (said,) = trackers.warnings_in(caplog)
        assert f"{name} has points of this run up to step 7" in said
        assert 'resume="never"' in said


def test_never_begins_a_run_of_its_own(work: Path) -> None:
    def make() -> Any:
        return MlflowLoggerHook(interval=1, strict=True, log_model=False, resume="never")

    die_and_resume(work, make)
    with sqlite3.connect(work / "mlflow.db") as db:
        query = "select run_uuid, step from metrics where key = 'train/loss'"
        runs = Counter(run for run, _ in db.execute(query))
    assert sorted(runs.values()) == [4, 7]


def test_never_gives_tensorboard_and_dvclive_folders_of_their_own(work: Path) -> None:
    options: dict[str, Any] = {"interval": 1, "by_epoch": False, "resume": "never"}
    die_and_resume(work, lambda: TensorboardLoggerHook(**options))
    (apart,) = [path for path in (work / "tf_logs").iterdir() if path.is_dir()]
    assert [*trackers.read_tensorboard(apart)[0]] == [5, 6, 7, 8]
    die_and_resume(work, lambda: DvcliveLoggerHook(**options))
    assert sorted(map(len, map(trackers.read_dvclive, work.glob("dvclive*")))) == [4, 7]


def test_another_word_for_resume_is_refused_with_the_closest() -> None:
    with pytest.raises(ValueError, match="did you mean 'never'"):
        TensorboardLoggerHook(resume="nevr")


def test_neptune_offline_begins_a_file_that_goes_on_after_the_checkpoint(work: Path) -> None:
    die_and_resume(work, lambda: NeptuneLoggerHook(interval=1, strict=True))
    folders = sorted((work / ".neptune/offline").iterdir())
    found = []
    for folder in folders:
        records = read_neptune(str(folder))[0]
        found.append([r.step for r in records if "train/loss" in r.scalars])
    assert sorted(found) == [[1, 2, 3, 4, 5, 6, 7], [5, 6, 7, 8]]


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize("by_epoch", [False, True])
def test_what_was_not_sent_is_sent_by_the_run_that_resumes(
    host: bool, by_epoch: bool, work: Path
) -> None:
    dead, alive = [True], []

    def trouble(writer: Kept) -> None:
        if dead[0] and writer.calls > 2:
            raise KeyError("no more")

    def make() -> TrackerHook:
        hook = KeepHook(lambda: Kept(trouble), by_epoch=by_epoch)
        alive.append(hook)
        dead[0] = len(alive) == 1
        return hook

    die_and_resume(work, make, host=host)
    before, after = [
        [(r.step, name) for r in hook.kept.records for name in r.scalars if "/" in name]
        for hook in alive
    ]
    steps = [step for step, name in before + after if name == "train/loss"]
    assert steps == list(range(1, 9))
    counts = Counter(before + after)
    assert set(counts.values()) == {1}
    assert not list(work.glob("spool/*"))


def test_an_id_that_the_backend_had_not_given_yet_is_found(work: Path) -> None:
    """The checkpoint is written before MLflow has made its run."""
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    again = MlflowWriter.connect(uri=uri, label="1f", after=4)
    assert again.run == first.run
    assert MlflowWriter.connect(uri=uri, label="2f", after=4).run != first.run


def test_a_changed_parameter_stays_as_it_was_in_mlflow(work: Path) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    first.params({"lr": 0.1, "size": 3})
    again = MlflowWriter.connect(uri=uri, run_id=first.run, label="1f", after=4)
    again.params({"lr": 0.2, "size": 3, "new": 1})
    found = first.client.get_run(first.run).data.params
    assert found == {"lr": "0.1", "size": "3", "new": "1"}
    assert "lr of the run stays" in again.note


def test_a_run_that_was_deleted_in_mlflow_is_begun_anew(work: Path) -> None:
    uri = f"sqlite:///{work}/mlflow.db"
    first = MlflowWriter.connect(uri=uri, label="1f")
    first.client.delete_run(first.run)
    assert MlflowWriter.connect(uri=uri, run_id=first.run, label="1f", after=4).run != first.run
    assert MlflowWriter.connect(uri=uri, run_id="0" * 32, label="1f", after=4).run != first.run
