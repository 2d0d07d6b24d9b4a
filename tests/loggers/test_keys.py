"""Each tracker key holds the values of a single name, by step or by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_hooks import LoggerHook, TensorboardLoggerHook
from support.logs.trackers import REAL_CLIENTS, read_tensorboard
from support.training import NoValidation, TinyModule, fit

pytest.importorskip("tensorboard")
pytestmark = REAL_CLIENTS


class Tags(LoggerHook):
    """Keeps the tags of each line."""

    def log(self, runner: Any) -> None:
        vars(self).setdefault("lines", []).append(self.get_loggable_tags(runner))

    def of(self, key: str) -> list[float]:
        return [tags[key] for tags in vars(self)["lines"] if key in tags]


class ByEpoch(NoValidation):
    """A module that logs a loss, equal to the batch index, by epoch only."""

    def __init__(self, name: str = "train/loss", how: str = "tensor") -> None:
        super().__init__()
        self.name, self.how = name, how
        self.mean = torchmetrics.MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.net(batch[0]).sum() * 0 + batch_idx
        self.mean(loss)
        value = self.mean if self.how == "metric" else loss
        self.log(self.name, value, on_step=False, on_epoch=True)
        return loss


@pytest.mark.parametrize("how", ["tensor", "metric"])
@pytest.mark.parametrize("name", ["train/loss", "loss"])
def test_an_epochs_mean_is_not_in_the_series_of_steps(tmp_path: Path, name: str, how: str) -> None:
    log = Tags(interval=2)
    fit(tmp_path, log, module=ByEpoch(name, how), max_epochs=2)
    assert log.of("train/loss") == [0.5, 2.5] * 2
    assert log.of("train/loss_epoch") == [1.5] * 2


@pytest.mark.parametrize("how", ["tensor", "metric"])
@pytest.mark.parametrize("name", ["train/loss", "loss", "train_loss"])
def test_by_lightnings_names_an_epochs_points_are_lightnings(
    tmp_path: Path, name: str, how: str
) -> None:
    logger = TensorBoardLogger(tmp_path, name="lightning", version=0)
    hook = TensorboardLoggerHook(interval=2, names="lightning")
    options: dict[str, Any] = {"max_epochs": 2, "logger": logger, "log_every_n_steps": 1}
    fit(tmp_path, hook, module=ByEpoch(name, how), **options)
    theirs, _ = read_tensorboard(tmp_path / "lightning" / "version_0")
    ours, _ = read_tensorboard(tmp_path / "tf_logs")
    of_epochs = {step: row[name] for step, row in theirs.items() if name in row}
    assert {step: row[name] for step, row in ours.items() if name in row} == of_epochs
    of_steps = "train_loss_step" if name == "train_loss" else "train_loss"
    assert [row[of_steps] for row in ours.values() if of_steps in row] == [0.5, 2.5] * 2


class TwoNames(TinyModule):
    """A module that logs two names with the same key."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.log("acc", 0.25)
        if batch_idx:  # the second name comes later
            self.log("train/acc", 0.75)
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log_dict({"val/score": 1.0, "score": 2.0})


def test_departure_two_names_of_one_key_are_both_kept(tmp_path: Path, caplog: Any) -> None:
    log = Tags(interval=1)
    fit(tmp_path, log, module=TwoNames, val=1, max_epochs=2, num_sanity_val_steps=0)
    assert log.of("train/acc") == [0.25] * 8
    assert log.of("train/acc_2") == [0.75] * 6
    assert log.of("val/score") == [1.0] * 2
    assert log.of("val/score_2") == [2.0] * 2
    told = [text for text in caplog.messages if "one key" in text]
    assert sorted(told) == [
        "'acc' and 'train/acc' have one key in trackers: the second is logged as train/acc_2",
        "'val/score' and 'score' have one key in trackers: the second is logged as val/score_2",
    ]


def test_a_loss_by_the_name_of_its_key_is_one_value(tmp_path: Path, caplog: Any) -> None:
    class Named(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            self.log("train/loss", loss)
            return loss

    log = Tags(interval=2)
    fit(tmp_path, log, module=Named)
    assert len(log.of("train/loss")) == 2
    assert not log.of("train/loss_2")
    assert "one key" not in caplog.text


class Axis(NoValidation):
    """A module that logs names reserved by the hook, and sets the step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x = 10.0 * (batch_idx + 1)
        self.log_dict({"step": x, "epoch": x + 1, "learning_rate": x + 2, "x": x + 3})
        return self.loss(batch)

    def on_train_epoch_end(self) -> None:
        self.log_dict({"step": 77.0, "at_end": 1.0})


def test_by_lightnings_names_the_modules_own_values_win(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="lightning", version=0)
    hook = TensorboardLoggerHook(interval=1, names="lightning")
    fit(tmp_path, hook, module=Axis, logger=logger, log_every_n_steps=1)
    theirs, _ = read_tensorboard(tmp_path / "lightning" / "version_0")
    ours, _ = read_tensorboard(tmp_path / "tf_logs")
    kept = [{k: v for k, v in row.items() if k in theirs[step]} for step, row in ours.items()]
    assert kept == [*theirs.values()]
    assert [*ours] == [10, 20, 30, 40, 77]


def test_a_step_of_several_iterations_is_the_last_ones(tmp_path: Path) -> None:
    hook = TensorboardLoggerHook(interval=2, names="lightning")
    fit(tmp_path, hook, module=Axis)
    rows, _ = read_tensorboard(tmp_path / "tf_logs")
    assert [*rows] == [20, 40, 77]
    assert rows[20]["x"] == 18.0
