"""DVCLive with the real client: the tests read the logged values back."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import (
    CheckpointHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    NeptuneLoggerHook,
)
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.trackers.dvclive import DvcliveWriter
from lightning_hooks.loggers.trackers.table import arguments_of
from support.logs.trackers import (
    REAL_CLIENTS,
    Sent,
    Tuned,
    fit,
    quiet,
    read_dvclive,
    read_neptune,
    series,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


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
    """Reports a value named like the group of another value, in both orders."""

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
def test_departure_a_number_and_a_group_share_a_name(
    hook: Any, read_rows: Any, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(hook._package)
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


def test_a_dvclive_run_that_goes_on_finds_its_names(work: Path) -> None:
    live = pytest.importorskip("dvclive").Live
    options = {"dir": str(work / "d"), "save_dvc_exp": False, "report": None, "dvcyaml": None}
    for step, names in ((1, ("a", "a/b")), (2, ("a/b", "a"))):
        writer = DvcliveWriter(live(**options, resume=step > 1))
        writer.write([Record(step, 0.0, step, {name: float(len(name)) for name in names})])
        writer.close()
    assert read_dvclive(work / "d") == {step: {"a": 1.0, "a_/b": 3.0} for step in (1, 2)}


def test_departure_dvclive_needs_no_git_and_makes_no_report(work: Path) -> None:
    pytest.importorskip("dvclive")
    fit(work, DvcliveLoggerHook(), epochs=1)
    assert {p.name for p in (work / "dvclive").iterdir()} == {"metrics.json", "plots"}
    assert os.listdir() == []


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_a_git_repository_stays_as_it_is(work: Path, host: bool) -> None:
    pytest.importorskip("dvclive")
    git = partial(subprocess.run, cwd=Path.cwd(), check=True, capture_output=True)
    git(["git", "init", "-q"])
    hook = DvcliveLoggerHook()
    fit(work, HookAdapter([hook]) if host else hook, epochs=1)
    assert read_dvclive(work / "dvclive").keys() == {1}
    assert git(["git", "status", "--short"]).stdout == b""


def test_the_databases_of_a_dvc_repository_are_closed(work: Path) -> None:
    pytest.importorskip("dvclive")
    psutil = pytest.importorskip("psutil")
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\nno_scm = true\n")
    writer = DvcliveWriter.reopen(**arguments_of(DvcliveWriter, {"dir": str(work / "dvclive")}))
    process = psutil.Process()
    assert [file for file in process.open_files() if file.path.endswith("cache.db")]
    writer.close()
    assert not [file for file in process.open_files() if file.path.endswith("cache.db")]


def test_departure_a_dvclive_run_that_goes_on_keeps_its_files(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("dvclive")

    def train(epochs: int, **how: Any) -> Any:
        adapter = HookAdapter([DvcliveLoggerHook()], work_dir=str(work))
        trainer = make_trainer(tmp_path, adapter, max_epochs=epochs, num_sanity_val_steps=0)
        trainer.fit(TinyModule(), make_loader(4), make_loader(2), **how)
        return trainer

    train(1).save_checkpoint(tmp_path / "one.ckpt")
    train(2, ckpt_path=tmp_path / "one.ckpt")
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


def test_the_path_of_mmcvs_first_releases_is_the_folder(work: Path, tmp_path: Path) -> None:
    fit(work, DvcliveLoggerHook(path=str(tmp_path / "live")), epochs=1)
    assert read_dvclive(tmp_path / "live").keys() == {1}
    with pytest.raises(TypeError, match="path, mmcv's old name, and dir are the same"):
        DvcliveLoggerHook(path="a", dir="b")


def test_an_evaluation_alone_keeps_the_values_of_a_fit(work: Path) -> None:
    pytest.importorskip("dvclive")
    fit(work, DvcliveLoggerHook())
    of_fit = read_dvclive(work / "dvclive")
    alone = make_trainer(work, HookAdapter([DvcliveLoggerHook()], work_dir=str(work)))
    (scores,) = alone.validate(TinyModule(), make_loader(1), verbose=False)
    assert read_dvclive(work / "dvclive") == {
        **of_fit, 0: {"val/val_loss": pytest.approx(scores["val_loss"])}
    }  # fmt: skip


class Hits(TinyModule):
    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("hits", 1.0)


def test_an_evaluation_has_the_epoch_of_its_file(work: Path) -> None:
    pytest.importorskip("dvclive")
    fit(work, CheckpointHook(interval=1), DvcliveLoggerHook())
    alone = make_trainer(work, HookAdapter([DvcliveLoggerHook()], work_dir=str(work)))
    alone.test(Hits(), make_loader(1), ckpt_path=str(work / "epoch_1.pth"), verbose=False)
    rows = read_dvclive(work / "dvclive")
    assert [step for step, row in rows.items() if "test/hits" in row] == [1]
