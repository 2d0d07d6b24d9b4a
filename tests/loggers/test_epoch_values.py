"""Epoch-level values, ``trainer.test`` and ``trainer.validate`` reach every writer."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics

from lightning_hooks import (
    DvcliveLoggerHook,
    HookAdapter,
    LoggerHook,
    MlflowLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
)
from support.logs.text import read_logs
from support.training import TinyModule, fit, make_loader, make_trainer

both = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])


class Logs(TinyModule):
    """A module that logs with each option of Lightning; the value of a step is the batch index."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torchmetrics.MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        value = float(batch_idx)
        self.log("both", value, on_step=True, on_epoch=True)
        self.log("epoch_only", value, on_step=False, on_epoch=True)
        self.mean.update(value)
        self.log("metric", self.mean, on_step=False, on_epoch=True)
        return self.loss(batch)

    def on_train_epoch_end(self) -> None:
        self.log("at_end", 10.0 * (self.current_epoch + 1))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("seen", float(batch_idx))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("hits", float(batch_idx))
        self.log("both", float(batch_idx), on_step=True, on_epoch=True)


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return TensorBoard's steps and values by name."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tf_logs"))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(e.step, round(e.value, 6)) for e in events.Scalars(name)] for name in names}


VALUES = {"both_epoch": 1.5, "epoch_only": 1.5, "metric": 1.5}


def of_mode(rows: list[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["mode"] == mode]


@both
@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("val", [0, 1])
def test_once_an_epoch_after_the_modules_own_hook(
    tmp_path: Path, host: bool, by_epoch: bool, val: int
) -> None:
    options: dict[str, Any] = {} if by_epoch or not host else {"by_epoch": False}
    hook = TextLoggerHook(interval=2, by_epoch=by_epoch)
    module = Logs()
    if not val:
        module.validation_step = None  # type: ignore[assignment]
    fit(tmp_path, hook, module=module, val=val, host=host, max_epochs=2, **options)
    rows, lines = read_logs(tmp_path)
    found = of_mode(rows, "train_epoch")
    expected = [{**VALUES, "at_end": 10.0}, {**VALUES, "at_end": 20.0}]
    assert [{k: row[k] for k in expected[0]} for row in found] == expected
    assert [row["epoch"] for row in found] == [1, 2]
    assert [row["iter"] for row in found] == ([4, 4] if by_epoch else [4, 8])
    assert all("epoch_only" not in row and "at_end" not in row for row in of_mode(rows, "train"))
    assert sum("at_end" in line for line in lines) == 2
    assert "on_train_epoch_end" not in vars(module)


@both
def test_trackers_have_them_with_the_number_of_the_validation(tmp_path: Path, host: bool) -> None:
    hook = TensorboardLoggerHook(interval=2)
    fit(tmp_path, hook, module=Logs, val=3, host=host, max_epochs=2)
    found = points(tmp_path)
    assert found["train/epoch_only"] == found["train/metric"] == [(5, 1.5), (9, 1.5)]
    assert found["train/at_end"] == [(5, 10.0), (9, 20.0)]
    assert found["val/seen"] == [(5, 1.0), (9, 1.0)]
    assert found["train/both"] == [(2, 0.5), (4, 2.5), (6, 0.5), (8, 2.5)]
    assert found["learning_rate"] == [(step, 0.1) for step in (2, 4, 5, 6, 8, 9)]


@both
@pytest.mark.parametrize("fitted", [False, True], ids=["alone", "after a fit"])
def test_a_test_and_a_validation_outside_of_a_fit(tmp_path: Path, host: bool, fitted: bool) -> None:
    hooks = [TextLoggerHook(interval=2), TensorboardLoggerHook(interval=2)]
    trainer = make_trainer(tmp_path, *([HookAdapter(hooks)] if host else hooks), max_epochs=2)
    module = Logs()
    if fitted:
        trainer.fit(module, make_loader(4), make_loader(1))
    trainer.test(module, make_loader(5), verbose=False)
    trainer.validate(module, make_loader(3), verbose=False)
    rows, lines = read_logs(tmp_path)
    epoch, step = (2, 9) if fitted else (0, 0)
    assert of_mode(rows, "test") == [
        {"mode": "test", "epoch": epoch, "iter": 5, "hits": 2.0, "both": 2.0}
    ]
    last = of_mode(rows, "val")[-1]
    assert (last["epoch"], last["iter"], last["seen"]) == (epoch, 3, 1.0)
    assert any(f"Epoch(test) [{epoch}][5]" in line for line in lines)
    found = points(tmp_path)
    assert found["test/hits"] == [(step, 2.0)]
    assert (step, 1.0) in found["val/seen"]


class Own(LoggerHook):
    """A logger of the user's, with ``log`` alone."""

    def __init__(self) -> None:
        super().__init__(interval=2)
        self.found: list[Any] = []

    def log(self, runner: Any) -> None:
        tags = self.get_loggable_tags(runner)
        self.found.append((self.get_mode(runner), self.get_epoch(runner), [*tags]))


class Old:
    """A logger with mmcv's interface, without support for values of epochs."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def after_train_iter(self, runner: Any) -> None:
        runner.log_buffer.average(2)
        self.found.append({**runner.log_buffer.output})
        runner.log_buffer.clear_output()


def test_a_logger_of_the_users_gets_them_and_an_old_one_does_not(tmp_path: Path) -> None:
    own, old = Own(), Old()
    fit(tmp_path, own, module=Logs, val=1)
    epoch = ["train/both_epoch", "train/epoch_only", "train/metric", "train/at_end"]
    assert own.found[-1] == ("train", 1, epoch)
    fit(tmp_path, old, module=Logs, val=1, host=True)
    assert all({*row} == {"loss", "both"} for row in old.found)


def test_nothing_is_written_where_nothing_is_logged(tmp_path: Path) -> None:
    fit(tmp_path, TextLoggerHook(interval=2), val=1)
    rows, _ = read_logs(tmp_path)
    assert [row["mode"] for row in rows] == ["train", "train", "val"]


def test_dvclive(tmp_path: Path) -> None:
    trainer = fit(tmp_path, DvcliveLoggerHook(), module=Logs, val=1, max_epochs=2)
    trainer.test(trainer.lightning_module, make_loader(5), verbose=False)
    folder = tmp_path / "dvclive" / "plots" / "metrics"
    rows = (folder / "train" / "epoch_only.tsv").read_text().splitlines()
    assert [row.split("\t")[-2:] for row in rows[1:]] == [["1", "1.5"], ["2", "1.5"]]
    assert (folder / "test" / "hits.tsv").read_text().splitlines()[1].endswith("2\t2.0")


@pytest.mark.usefixtures("nothing_elsewhere")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_test_after_a_fit_goes_on_with_its_run(work: Path) -> None:
    trainer = fit(work, MlflowLoggerHook(interval=2), module=Logs, val=3)
    trainer.test(trainer.lightning_module, make_loader(5), verbose=False)
    trainer.validate(trainer.lightning_module, make_loader(5), verbose=False)
    with contextlib.closing(sqlite3.connect(work / "mlflow.db")) as db:
        assert len(db.execute("SELECT run_uuid FROM runs").fetchall()) == 1
        found = db.execute("SELECT key, step, value FROM metrics").fetchall()
    assert {("test/hits", 5, 2.0), ("val/seen", 5, 1.0), ("val/seen", 5, 2.0)} < {*found}
