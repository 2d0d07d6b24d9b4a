"""Neptune with the real client: the tests read the logged values back."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.cli import main
from lightning_hooks.loggers.trackers import neptune
from lightning_hooks.loggers.trackers.neptune import NeptuneLoggerHook
from support.logs.trackers import (
    REAL_CLIENTS,
    Crash,
    Odd,
    Sent,
    Talk,
    everything_in,
    fit,
    points,
    read_neptune,
    series,
    warnings_in,
)
from support.paths import ROOT
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


def test_neptune_run_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    fit(work, sent, NeptuneLoggerHook({"name": "digits"}, interval=2))
    operations = read_neptune(work)
    assert series(operations) == sent.rows
    (name,) = [x["value"] for x in operations if x.get("path") == ["sys", "name"]]
    assert name == "digits"
    (warning,) = warnings_in(caplog)
    assert "Neptune's hosted service closed in March 2026" in warning
    assert os.listdir() == []


def test_departure_neptune_without_step_has_a_series_each(work: Path) -> None:
    fit(work, NeptuneLoggerHook(interval=2, with_step=False), epochs=1)
    (row,) = series(read_neptune(work)).values()  # all without step
    assert row["global_step"] == 5
    assert row.keys() >= {"train/loss", "val/val_loss", "learning_rate"}


def test_departure_neptune_keeps_nan_as_a_text(work: Path) -> None:
    fit(work, NeptuneLoggerHook(interval=1), Odd(), epochs=1)
    texts = [x for x in read_neptune(work) if x["type"] == "LogStrings"]
    points = {p["step"]: p["value"] for x in texts for p in x["values"]}
    assert {"/".join(x["path"]) for x in texts} == {"train/odd_nonfinite"}
    assert points == {1: "nan", 2: "inf", 3: "-inf"}
    (run,) = work.glob(".neptune/offline/run__*")
    records, _, _ = neptune.read_neptune(str(run))
    found = [record.scalars.get("train/odd") for record in records if record.scalars]
    assert str(found[:4]) == "[nan, inf, -inf, 1.5]"


def test_a_failed_training_is_a_failed_neptune_run(work: Path) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, NeptuneLoggerHook(interval=2), Crash())
    operations = read_neptune(work)
    assert len(series(operations)) == 3
    assert [x["value"] for x in operations if x.get("path") == ["sys", "failed"]][-1] is True


def test_departure_neptune_is_offline_where_none_answers(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://neptune.invalid"
    token = {"api_address": address, "api_url": address, "api_key": "secret"}
    monkeypatch.setenv("NEPTUNE_API_TOKEN", b64encode(json.dumps(token).encode()).decode())
    sent = Sent(interval=2)
    hook = NeptuneLoggerHook({"mode": "async", "project": "a/b"}, interval=2, timeout=60)
    fit(work, sent, hook, epochs=1)
    assert series(read_neptune(work)) == sent.rows
    (warning,) = warnings_in(caplog)
    assert "none answers" in warning
    assert "the run is offline" in warning


def test_an_online_mode_is_told_once_that_the_service_has_ended(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEPTUNE_API_TOKEN", raising=False)
    trainer = make_trainer(work, NeptuneLoggerHook(mode="async", project="a/b", timeout=60))
    trainer.fit(TinyModule(), make_loader(), make_loader(2))
    trainer.validate(TinyModule(), make_loader(2), verbose=False)
    (warning,) = warnings_in(caplog)
    assert "Neptune's hosted service closed in March 2026" in warning


def test_a_replay_names_and_counts_what_it_leaves_out(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import neptune

    monkeypatch.setenv("NEPTUNE_DATA_DIRECTORY", str(work / ".neptune"))
    quiet = dict.fromkeys(("capture_stdout", "capture_stderr", "capture_hardware_metrics"), False)
    run = neptune.init_run(mode="offline", git_ref=False, tags=["a", "b"], **quiet)
    for loss in (0.5, 0.25):
        run["loss"].append(loss)
        run["notes"].append(f"loss {loss}")
    run["parameters/lr"] = 0.1
    run["when"] = datetime.now()
    (work / "x.txt").write_text("x")
    run["data/x"].upload(str(work / "x.txt"))
    run.stop()
    (folder,) = work.glob(".neptune/offline/run__*")
    uri = f"sqlite:///{work}/mlflow.db"
    with pytest.raises(SystemExit, match="0"):
        main(["replay", str(folder), "--to", "mlflow", "--tracking-uri", uri])
    assert points(work / "mlflow.db") == {1: {"loss": 0.5}, 2: {"loss": 0.25}}
    assert "3 records sent" in capsys.readouterr().out
    (warning,) = warnings_in(caplog)
    assert warning == (
        f"{folder}: left out, as no numbers: sys/tags (tags: 2), notes (texts: 2), "
        "when (dates: 1), data/x (files: 1)"
    )


def test_pages_with_neptune_say_that_its_service_has_ended() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "docs/hooks.yaml"]
    written = [page for page in pages if page.parent.name != "hooks"]  # hooks.yaml has the rest
    texts = [page.read_text() for page in written]
    offers = [text for text in texts if "Neptune" in text and "CHANGELOG" not in text]
    assert len(offers) >= 3
    assert all("hosted service ended in March 2026" in text for text in offers)


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
