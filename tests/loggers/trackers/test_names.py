"""``names="lightning"``: a tracker and Lightning's own logger lie in one chart."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import (
    CheckpointHook,
    DvcliveLoggerHook,
    HookAdapter,
    LightningLoggerHook,
    TensorboardLoggerHook,
    log_image,
)
from support.logs.kept import KeepHook
from support.logs.trackers import close, read_tensorboard
from support.training import TinyModule, make_loader, make_trainer

pytest.importorskip("tensorboard")


class Named(TinyModule):
    """Names its metrics itself, as users of Lightning do."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        self.log("acc", float(batch_idx), on_step=True, on_epoch=True)
        log_image(self, "sample", np.zeros((3, 4, 4), np.uint8))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", self.loss(batch))


class Quiet(TinyModule):
    """Logs nothing itself."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(batch)


def fit(folder: Path, *hooks: Any, module: Any = Named, **options: Any) -> None:
    """Train for two epochs of four batches beside Lightning's own logger."""
    ckpt = options.pop("ckpt_path", None)
    logger = CSVLogger(folder, name="csv", version=int(ckpt is not None))
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "log_every_n_steps": 1, **options}
    adapter = HookAdapter(list(hooks), work_dir=str(folder / "work"))
    trainer = make_trainer(folder, adapter, logger=logger, **options)
    trainer.fit(module(), make_loader(4), make_loader(2), ckpt_path=ckpt)


def rows_of_lightning(folder: Path) -> dict[int, dict[str, float]]:
    """Return the values of Lightning's logger by step, without its own extras."""
    rows: dict[int, dict[str, float]] = {}
    with (folder / "csv/version_0/metrics.csv").open() as file:
        for row in csv.DictReader(file):
            found = {name: float(value) for name, value in row.items() if value}
            rows.setdefault(int(found.pop("step")), {}).update(found)
    return rows


RATES = "learning_rate", "momentum"


def test_a_tracker_has_the_names_steps_and_values_of_lightning_s_logger(tmp_path: Path) -> None:
    fit(tmp_path, TensorboardLoggerHook(interval=1, names="lightning"))
    ours = read_tensorboard(tmp_path / "work/tf_logs")[0]
    assert all(row.pop("learning_rate") == pytest.approx(0.1) for row in ours.values())
    assert all(row.pop("momentum") == pytest.approx(0.9) for row in ours.values())
    assert close(ours, rows_of_lightning(tmp_path))
    assert {"train_loss", "acc_step", "acc_epoch", "val_acc", "epoch"} == ours[3].keys()


class WarmedUp(TinyModule):
    """Returns a part of the loss that it logs, and later the sum with another part."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        part = self.loss(batch)
        self.log("part", part)
        return part if self.global_step < 2 else part + 1


def test_a_part_that_is_the_loss_at_first_keeps_its_values(tmp_path: Path) -> None:
    hooks = TensorboardLoggerHook(interval=1, names="lightning"), LightningLoggerHook(interval=1)
    fit(tmp_path, *hooks, module=WarmedUp, max_epochs=1)
    ours = read_tensorboard(tmp_path / "work/tf_logs")[0]
    there = rows_of_lightning(tmp_path)
    parts = [row["part"] for row in there.values()]
    assert [row["part"] for row in ours.values()] == pytest.approx(parts)
    assert [row.get("train/loss") for row in there.values()][:2] == [None, None]
    assert there[3]["train/loss"] == pytest.approx(parts[3] + 1)
    sums = {step: row["train_loss"] for step, row in ours.items() if "train_loss" in row}
    assert sums == pytest.approx({step: ours[step]["part"] + 1 for step in (2, 3)})


@pytest.mark.parametrize("module", [Named, Quiet])
def test_the_names_of_mmcv_are_the_default(tmp_path: Path, module: Any) -> None:
    usual, named = KeepHook(interval=2), KeepHook(interval=2, names="lightning")
    fit(tmp_path, usual, named, module=module)
    (first, *_, last), mine = usual.kept.records, named.kept.records
    assert "train/loss" in {name for one in usual.kept.records for name in one.scalars}
    assert {"train/epoch", "val/epoch"}.isdisjoint(first.scalars)
    assert (first.step, last.scalars.get("epoch")) == (1 if module is Named else 2, 2.0)
    lines = {one.step: one.scalars for one in mine if one.scalars}
    assert {1, 3, 5, 7} >= lines.keys() >= {1, 5}
    assert {*lines[1]} - {*RATES} == {"train_loss", "epoch"} | ({"acc_step"} & {*lines[1]})
    if module is Named:
        assert {name for one in mine for name in one.images} == {"sample"}


def test_values_are_counted_on_after_a_resume_by_lightning_s_steps(tmp_path: Path) -> None:
    hook = TensorboardLoggerHook(interval=1, names="lightning")
    fit(tmp_path, hook, CheckpointHook(interval=1))
    whole = read_tensorboard(tmp_path / "work/tf_logs")[0]
    again = tmp_path / "again"
    fit(again, TensorboardLoggerHook(interval=1, names="lightning"), CheckpointHook(), max_epochs=1)
    hook = TensorboardLoggerHook(interval=1, names="lightning")
    fit(again, hook, ckpt_path=str(again / "work/epoch_1.pth"))
    assert read_tensorboard(again / "work/tf_logs")[0].keys() == whole.keys()


def test_lightning_s_own_epoch_is_not_logged_twice(tmp_path: Path) -> None:
    fit(tmp_path, LightningLoggerHook(interval=1, names="lightning"))
    epochs = [row["epoch"] for row in rows_of_lightning(tmp_path).values()]
    assert epochs == [0.0] * 4 + [1.0] * 4
    head = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert not any("/" in name for name in head)


def test_dvclive_s_files_have_lightning_s_steps(tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    fit(tmp_path, DvcliveLoggerHook(names="lightning"))
    lines = (tmp_path / "work/dvclive/plots/metrics/val_acc.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["step", "3", "7"]


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="names must be one of mmcv, lightning, got 'mine'"):
        TensorboardLoggerHook(names="mine")
