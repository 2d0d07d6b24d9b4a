"""Trackio with the real client: the tests read the logged values from its database."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import (
    CheckpointHook,
    MlflowLoggerHook,
    TrackioLoggerHook,
    WatchHook,
    log_image,
    log_table,
)
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.table import options_of
from lightning_hooks.loggers.trackers.trackio import TrackioWriter
from support.logs.media import GIF, WAV, Telling
from support.logs.trackers import REAL_CLIENTS, Odd, Sent, Tuned, fit, quiet
from support.training import TinyModule, make_loader, make_trainer

trackio = pytest.importorskip("trackio")
sqlite_storage = pytest.importorskip("trackio.sqlite_storage")
pytestmark = REAL_CLIENTS


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "trackio"
    trackio.context_vars.current_run.set(None)  # a run of an earlier test, which a hook would use
    for name, module in [*sys.modules.items()]:
        for attribute, path in {"TRACKIO_DIR": folder, "MEDIA_DIR": folder / "media"}.items():
            if name.startswith("trackio") and hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, path)


def rows_of(project: str, run: str) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for row in sqlite_storage.SQLiteStorage.get_logs(project, run):
        step = row.pop("step")
        rows.setdefault(step, {}).update({k: v for k, v in row.items() if k != "timestamp"})
    return rows


def test_a_run_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    hook = TrackioLoggerHook(project="digits", name="first", interval=2)
    fit(work, sent, hook, module=Tuned(0.2))
    found = rows_of("digits", "first")
    assert found == sent.rows
    assert {"val/val_loss", "train/loss"} <= set().union(*found.values())
    (run,) = trackio.Api().runs("digits")
    assert run.config["lr"] == 0.2
    assert quiet(caplog)
    assert os.listdir() == []


def test_nan_and_infinities_are_read_back(work: Path) -> None:
    fit(work, Odd(), TrackioLoggerHook(project="odd", name="first", interval=1), epochs=1)
    rows = rows_of("odd", "first")
    found = [rows[step]["train/odd"] for step in sorted(rows) if "train/odd" in rows[step]]
    assert repr(found) == "[nan, inf, -inf, 1.5]"


class Sampling(TinyModule):
    """Logs an image and a table."""

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 0:
            log_image(self, "sample", torch.ones(3, 4, 5))
            log_table(self, "worst", {"id": [1, 2], "label": ["cat", None]})
        return super().validation_step(batch, batch_idx)


def test_samples(work: Path) -> None:
    hook = TrackioLoggerHook(project="digits", name="first", interval=2)
    fit(work, WatchHook(100), hook, module=Sampling, epochs=1)
    rows = rows_of("digits", "first")
    assert rows[5]["val/sample"]["_type"] == "trackio.image"
    assert rows[5]["val/worst"]["_value"] == [{"id": 1, "label": "cat"}, {"id": 2, "label": None}]
    assert rows[1]["gradients/net.weight"]["_type"] == "trackio.histogram"


class Evaluated(TinyModule):
    """Logs in tests too."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", 0.5)


def test_a_test_and_a_resumed_fit_double_nothing(tmp_path: Path) -> None:
    hook = TrackioLoggerHook(project="digits", interval=1)
    saved = {"max_epochs": 2, "enable_checkpointing": True}
    trainer = make_trainer(tmp_path, CheckpointHook(interval=1), hook, **saved)
    trainer.fit(Evaluated(), make_loader(), make_loader(2))
    trainer.test(Evaluated(), make_loader(2), verbose=False)
    (run,) = trackio.Api().runs("digits")
    assert rows_of("digits", run.name)[9]["test/acc"] == 0.5
    (path,) = tmp_path.glob("**/epoch_1.pth")
    hook = TrackioLoggerHook(project="digits", interval=1)
    again = make_trainer(tmp_path, CheckpointHook(interval=1), hook, **saved)
    again.fit(Evaluated(), make_loader(), make_loader(2), ckpt_path=str(path))
    (run,) = trackio.Api().runs("digits")
    logs = sqlite_storage.SQLiteStorage.get_logs("digits", run.name)
    logged = [row["step"] for row in logs if "train/loss" in row]
    assert sorted(logged) == [*range(1, 9)]


def test_the_program_s_run_is_used_and_left_open(work: Path) -> None:
    run = trackio.init(project="digits", name="mine", config={"lr": 7})
    fit(work, TrackioLoggerHook(interval=2), module=Tuned(0.2, {"size": 8}), epochs=1)
    assert (run.config["lr"], run.config["data/size"]) == (7, 8)
    assert options_of(TrackioWriter, run, {})["run_id"] == "mine"  # for the command to replay
    assert options_of(TrackioWriter, run, {})["project"] == "digits"
    trackio.log({"mine": 1.0})
    trackio.finish()
    assert {"mine", "train/loss"} <= set().union(*rows_of("digits", "mine").values())


def test_a_spool_goes_to_trackio(work: Path) -> None:
    dead = {"uri": "http://127.0.0.1:9"}
    hook = MlflowLoggerHook(interval=2, log_model=False, timeout=0.2)
    hook._target = lambda runner: dead  # type: ignore[method-assign]
    fit(work, hook, epochs=1)
    (path,) = work.glob("spool/*.jsonl")
    replay(str(path), "trackio", project="digits", run_id="moved")
    assert rows_of("digits", "moved").keys() == {2, 4, 5}


def test_it_holds_figures_texts_sounds_and_videos(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = TrackioLoggerHook(interval=2, project="media", name="told")
    fit(work, hook, module=Telling, epochs=1)
    files = {p.suffix: p for p in (tmp_path / "trackio/media").rglob("*.*")}
    assert {".png", ".wav", ".gif"} <= files.keys()
    assert files[".wav"].read_bytes() == WAV
    assert files[".gif"].read_bytes() == GIF
    rows = rows_of("media", "told")
    assert [step for step, row in rows.items() if "val/answer" in row] == [5]
    assert quiet(caplog)
