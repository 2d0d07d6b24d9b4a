"""What trackers get when a run goes back to a checkpoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    CheckpointHook,
    HookAdapter,
    MlflowLoggerHook,
    TensorboardLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.delivery.spool import Spool, read_spool
from lightning_hooks.loggers.replay import open_writer
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.usefixtures("nothing_elsewhere")


def run(work: Path, hook: Any, epochs: int, ckpt: str | None = None, **kwargs: Any) -> None:
    hooks = CheckpointHook(interval=2, by_epoch=False), hook
    adapter = HookAdapter(list(hooks), work_dir=str(work), **kwargs)
    trainer = make_trainer(work, adapter, max_epochs=epochs)
    path = None if ckpt is None else str(work / ckpt)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=path)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
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


def test_a_replay_takes_nothing_back(work: Path) -> None:
    pytest.importorskip("tensorboard")
    spool = Spool(str(work / "a.jsonl"), {"writer": "tensorboard", "arguments": {"purge_step": 5}})
    spool.append(0.0, 5, scalars={"a": 1.0})
    spool.take(1)
    writer = open_writer("tensorboard", log_dir=str(work / "tf_logs"), purge_step=5)
    spool.acknowledge(1, writer.resume())
    writer.close()
    spool.close(keep=True)
    head, records, _ = read_spool(spool.path, rest=True)
    assert {**head["arguments"], **head["resume"]}["purge_step"] is None
    assert records == []


def test_a_resumed_run_is_another_one_in_mlflow_unless_given(work: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{work}/mlflow.db")
    run(work, MlflowLoggerHook(interval=1, strict=True, log_model=False), epochs=2)
    again = MlflowLoggerHook(interval=1, strict=True, log_model=False)
    run(work, again, epochs=2, ckpt="iter_4.pth")
    experiment = client.get_experiment_by_name(work.name)
    runs = client.search_runs([experiment.experiment_id], order_by=["start_time"])
    steps = [
        [m.step for m in client.get_metric_history(found.info.run_id, "train/loss")]
        for found in runs
    ]
    assert sorted(map(sorted, steps)) == [list(range(1, 9)), list(range(5, 9))]


def test_in_a_given_mlflow_run_a_repeated_step_has_both_values(work: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{work}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    made = client.create_run("0")
    for value in (1.0, 2.0):
        writer = open_writer("mlflow", uri=uri, run_id=made.info.run_id)
        from lightning_hooks.loggers.delivery.record import Record

        writer.write([Record(0, value, 7, {"loss": value})])
    history = client.get_metric_history(made.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(7, 1.0), (7, 2.0)]
    assert client.get_run(made.info.run_id).data.metrics["loss"] == 2.0


def test_a_resumed_run_is_another_one_in_wandb(work: Path) -> None:
    pytest.importorskip("wandb")
    ids = []
    for ckpt in (None, "iter_4.pth"):
        hook = WandbLoggerHook(interval=1, strict=True, log_artifact=False)
        run(work, hook, epochs=2, ckpt=ckpt)
        ids.append(hook.client_run.id)
    assert len(set(ids)) == 2
    assert len(list((work / "wandb").glob("offline-run-*"))) == 2
